// Poison and red zones, on the host and on a device: the GPU where there is one, else the fake one.

#include <burin/runtime/event.h>
#include <burin/runtime/memory/adaptors.h>
#include <burin/runtime/memory/debug_resource.h>
#include <support/test_support.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include <gmock/gmock.h>

#if defined(BURIN_WITH_CUDA)
#include <burin/runtime/cuda/cuda_calls.h>
#include <support/fake_cuda.h>
#endif

namespace burin::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Violation = DebugResource::Violation;

class DebugMemory : public ::testing::Test {
 protected:
  Stream stream_{Device::cpu()};
  std::shared_ptr<CountingResource> upstream_ = std::make_shared<CountingResource>(make_cpu_resource());
  DebugResource memory_{upstream_};

  unsigned char* allocate(std::size_t bytes) {
    return static_cast<unsigned char*>(memory_.allocate(bytes, stream_));
  }
  void free(void* data, std::size_t bytes) { memory_.deallocate(data, bytes, stream_); }
};

TEST_F(DebugMemory, NewAndFreedMemoryIsPoisoned) {
  alignas(MemoryResource::kAlignment) unsigned char host[1024];  // may be read after the release
  const auto upstream = std::make_shared<CallbackResource>(
      Device::cpu(), MemoryKind::host,
      AllocatorCallbacks{.allocate = [&](std::size_t, std::size_t, void*) { return host; },
                         .deallocate = [](void*, std::size_t, void*) {}});
  DebugResource memory(upstream);
  auto* data = static_cast<unsigned char*>(memory.allocate(100, stream_));
  EXPECT_EQ(std::count(data, data + 100, 0xFF), 100);
  memory.deallocate(data, 100, stream_);
  EXPECT_EQ(std::count(data, data + 100, 0xDD), 100);

  DebugResource plain(upstream, {.poison = false, .red_zone_bytes = 0});
  std::memset(host, 1, sizeof host);
  plain.deallocate(plain.allocate(100, stream_), 100, stream_);
  EXPECT_EQ(std::count(host, host + sizeof host, 1), 1024);
}

TEST_F(DebugMemory, CleanUseIsNoViolation) {
  unsigned char* data = allocate(100);
  std::memset(data, 7, 100);
  EXPECT_NO_THROW(memory_.check());
  free(data, 100);
  EXPECT_THAT(memory_.violations(), IsEmpty());
  EXPECT_NO_THROW(memory_.check());
  EXPECT_EQ(upstream_->counts().live_bytes, 0u);
}

TEST_F(DebugMemory, WritesBesideABlockAreFoundWhenItIsFreed) {
  unsigned char* data = allocate(100);
  data[103] = 1;
  data[110] = 1;
  expect_error<Error>([&] { memory_.check(); }, "of 100 bytes: written after its end, at offset 103");
  EXPECT_THAT(memory_.violations(), IsEmpty());
  free(data, 100);
  unsigned char* second = allocate(50);
  second[-256] = 1;
  memory_.deallocate_after(second, 50, stream_, {});

  const std::vector<Violation> found = memory_.violations();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].kind, Violation::Kind::written_after);
  EXPECT_EQ(found[0].data, data);
  EXPECT_EQ(found[0].bytes, 100u);
  EXPECT_EQ(found[0].offset, 103);
  EXPECT_EQ(found[1].kind, Violation::Kind::written_before);
  EXPECT_EQ(found[1].offset, -256);
  EXPECT_THAT(to_string(found[1]), HasSubstr("of 50 bytes: written before its start, at offset -256"));
  expect_error<Error>([&] { memory_.check(); }, "offset 103");  // the first
}

TEST_F(DebugMemory, WrongReleasesAreFound) {
  unsigned char* data = allocate(100);
  free(data, 99);
  EXPECT_EQ(upstream_->counts().live_bytes, 0u);
  free(data, 100);
  EXPECT_EQ(upstream_->counts().live_blocks, 0u);
  const std::vector<Violation> found = memory_.violations();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].kind, Violation::Kind::wrong_bytes);
  EXPECT_THAT(to_string(found[0]), HasSubstr("of 100 bytes: freed as one of 99 bytes"));
  EXPECT_EQ(found[1].kind, Violation::Kind::invalid_free);
  EXPECT_THAT(to_string(found[1]), HasSubstr("freed, but not live"));
}

TEST_F(DebugMemory, KeepsNoMoreViolationsThanItSays) {
  int nowhere = 0;
  for (std::size_t i = 0; i < DebugResource::kMostViolations + 5; ++i) free(&nowhere, 4);
  EXPECT_EQ(memory_.violations().size(), DebugResource::kMostViolations);
}

TEST_F(DebugMemory, RedZonesKeepTheAlignmentAndTheRequestOfAnError) {
  DebugResource odd(upstream_, {.red_zone_bytes = 1});
  void* data = odd.allocate(100, stream_);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % MemoryResource::kAlignment, 0u);
  EXPECT_EQ(upstream_->counts().live_bytes, 612u);
  odd.deallocate(data, 100, stream_);
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - 255, std::size_t{1} << 62}) {
    try {
      odd.allocate(bytes, stream_);
      FAIL() << bytes;
    } catch (const OutOfMemory& error) {
      EXPECT_EQ(error.figures().requested, bytes);
    }
  }
  EXPECT_EQ(upstream_->counts().live_bytes, 0u);
  expect_error<Error>([&] { DebugResource(upstream_, {.red_zone_bytes = SIZE_MAX}); }, "are too large");
}

#if defined(BURIN_WITH_CUDA)
class DebugOnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (takes_fake_cuda()) fake_ = std::make_unique<FakeCuda>();
    stream_.emplace(Device::cuda(0));
    // Memory that may be used after its release, and while a stream is captured.
    base_ = make_cuda_resource(0);
    host_ = base_->allocate(kBytes, *stream_);
    fill(host_, static_cast<std::int64_t>(kBytes), 0);
    upstream_ = std::make_shared<CountingResource>(std::make_shared<CallbackResource>(
        Device::cuda(0), MemoryKind::device,
        AllocatorCallbacks{.allocate = [this](std::size_t, std::size_t, void*) { return host_; },
                           .deallocate = [](void*, std::size_t, void*) {}}));
    memory_ = std::make_unique<DebugResource>(upstream_);
  }
  void TearDown() override {
    memory_.reset();
    base_->deallocate(host_, kBytes, *stream_);
    stream_.reset();
    if (fake_) {
      EXPECT_THAT(fake_->violations(), IsEmpty());
    }
  }

  void* allocate(std::size_t bytes) { return memory_->allocate(bytes, *stream_); }
  void free(void* data, std::size_t bytes) { memory_->deallocate(data, bytes, *stream_); }
  void fill(void* data, std::int64_t bytes, int value) {
    cuda::fill(*stream_, DType::u8, data, bytes, value);
  }
  std::vector<unsigned char> read(const void* data, std::size_t bytes) {
    std::vector<unsigned char> values(bytes);
    cuda::copy_bytes(*stream_, values.data(), data, bytes);
    stream_->synchronize();
    return values;
  }
  static unsigned char* at(void* data, std::ptrdiff_t offset) {
    return static_cast<unsigned char*>(data) + offset;
  }
  cudaStream_t native() { return static_cast<cudaStream_t>(stream_->view().native_handle()); }

  static constexpr std::size_t kBytes = 4096;
  std::unique_ptr<FakeCuda> fake_;
  std::optional<Stream> stream_;
  std::shared_ptr<MemoryResource> base_;
  void* host_ = nullptr;
  std::shared_ptr<CountingResource> upstream_;
  std::unique_ptr<DebugResource> memory_;
};

TEST_F(DebugOnDevice, NewAndFreedMemoryIsPoisoned) {
  void* data = allocate(100);
  EXPECT_EQ(read(data, 100), std::vector<unsigned char>(100, 0xFF));
  free(data, 100);
  EXPECT_EQ(read(data, 100), std::vector<unsigned char>(100, 0xDD));
  EXPECT_NO_THROW(memory_->check());
}

TEST_F(DebugOnDevice, PoisonAndRedZonesComeAfterTheWorkOfUsers) {
  const Stream user(Device::cuda(0));
  const StreamView users[] = {user};
  void* data = allocate(100);
  Event ready(Device::cuda(0));
  ready.record(*stream_);
  user.wait(ready);
  cuda::fill(user, DType::u8, data, 104, 7);
  memory_->deallocate_after(data, 100, *stream_, users);
  EXPECT_EQ(read(data, 100), std::vector<unsigned char>(100, 0xDD));
  ASSERT_EQ(memory_->violations().size(), 1u);
  EXPECT_EQ(memory_->violations()[0].offset, 100);
}

TEST_F(DebugOnDevice, WritesBesideABlockAreFound) {
  void* data = allocate(100);
  fill(at(data, -5), 2, 1);
  expect_error<Error>([&] { memory_->check(); }, "of 100 bytes: written before its start, at offset -4");
  free(data, 100);
  ASSERT_EQ(memory_->violations().size(), 1u);
  EXPECT_EQ(memory_->violations()[0].kind, Violation::Kind::written_before);
  EXPECT_EQ(memory_->violations()[0].offset, -4);
}

TEST_F(DebugOnDevice, NothingIsWaitedForDuringACapture) {
  void* before = allocate(100);
  fill(at(before, 100), 1, 1);
  stream_->synchronize();
  const cuda::CudaApi& api = cuda::api();
  ASSERT_EQ(api.cudaStreamBeginCapture(native(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  free(before, 100);
  free(allocate(50), 50);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(api.cudaStreamEndCapture(native(), &graph), cudaSuccess);
  EXPECT_EQ(api.cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_THAT(memory_->violations(), IsEmpty());
  EXPECT_EQ(upstream_->counts().live_blocks, 0u);
  EXPECT_EQ(read(before, 100), std::vector<unsigned char>(100, 0xFF));
}

TEST_F(DebugOnDevice, AFailedFillGivesTheMemoryBack) {
  if (!fake_) GTEST_SKIP() << "calls fail on the fake device only";
  for (std::uint64_t n = 1; n <= 3; ++n) {
    fake_->fail_call(n, cudaErrorInvalidValue, false, "cudaMemsetAsync");
    EXPECT_THROW(allocate(100), CudaError) << n;
    EXPECT_EQ(upstream_->counts().live_blocks, 0u) << n;
  }
  fake_->fail_call(0, cudaSuccess);
  void* data = allocate(100);
  fake_->fail_call(1, cudaErrorInvalidValue, true);
  free(data, 100);
  fake_->fail_call(0, cudaSuccess);
  EXPECT_EQ(upstream_->counts().live_blocks, 0u);
}
#endif

}  // namespace
}  // namespace burin::test
