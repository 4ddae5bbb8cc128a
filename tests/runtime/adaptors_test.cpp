// The adaptors of memory resources: what each adds to its upstream.

#include <burin/runtime/memory/adaptors.h>
#include <burin/runtime/memory/debug_resource.h>
#include <support/test_support.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

namespace burin::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Adaptors : public ::testing::Test {
 protected:
  std::shared_ptr<CountingResource> upstream_ = std::make_shared<CountingResource>(make_cpu_resource());
  Stream stream_{Device::cpu()};

  /// Whether each of these allocations fails.
  std::vector<bool> failures(FailingResource& memory, int calls) {
    std::vector<bool> failed;
    for (int i = 0; i < calls; ++i) {
      void* data = nullptr;
      try {
        data = memory.allocate(64, stream_);
      } catch (const OutOfMemory& error) {
        EXPECT_EQ(error.figures().requested, 64u);
      }
      failed.push_back(data == nullptr);
      memory.deallocate(data, 64, stream_);
    }
    return failed;
  }
};

/// Records what reaches it.
class RecordingResource final : public MemoryResource {
 public:
  void* allocate(std::size_t bytes, StreamView stream) override {
    calls.push_back("allocate " + std::to_string(bytes));
    return heap_->allocate(bytes, stream);
  }
  void deallocate(void* data, std::size_t bytes, StreamView stream) noexcept override {
    calls.push_back("deallocate " + std::to_string(bytes));
    heap_->deallocate(data, bytes, stream);
  }
  void deallocate_after(void* data, std::size_t bytes, StreamView stream,
                        std::span<const StreamView> users) noexcept override {
    calls.push_back("deallocate_after " + std::to_string(bytes) + ", " + std::to_string(users.size()));
    heap_->deallocate(data, bytes, stream);
  }
  Device device() const noexcept override { return Device::cpu(); }
  MemoryKind kind() const noexcept override { return MemoryKind::pinned; }
  std::vector<std::string> calls;

 private:
  std::shared_ptr<MemoryResource> heap_ = make_cpu_resource();
};

TEST_F(Adaptors, PassOnEveryCall) {
  using namespace std::chrono_literals;
  const auto recording = std::make_shared<RecordingResource>();
  const std::vector<std::shared_ptr<MemoryResource>> adaptors = {
      std::make_shared<CountingResource>(recording), std::make_shared<LimitingResource>(recording, 1000),
      std::make_shared<FailingResource>(recording), std::make_shared<DelayingResource>(recording, 0us, 0us),
      std::make_shared<DebugResource>(recording, DebugOptions{.red_zone_bytes = 0})};
  const Stream other(Device::cpu());
  const StreamView users[] = {stream_, other};
  for (const std::shared_ptr<MemoryResource>& memory : adaptors) {
    recording->calls.clear();
    EXPECT_EQ(memory->kind(), MemoryKind::pinned);
    EXPECT_EQ(memory->device(), Device::cpu());
    memory->deallocate(memory->allocate(100, stream_), 100, stream_);
    memory->deallocate_after(memory->allocate(200, stream_), 200, stream_, users);
    EXPECT_THAT(recording->calls,
                ElementsAre("allocate 100", "deallocate 100", "allocate 200", "deallocate_after 200, 2"));
    recording->calls.clear();
    EXPECT_EQ(memory->allocate(0, stream_), nullptr);
    EXPECT_THAT(recording->calls, IsEmpty());
  }
}

TEST_F(Adaptors, NeedAnUpstream) {
  using namespace std::chrono_literals;
  expect_error<Error>([] { CountingResource{nullptr}; }, "counting_resource: the upstream");
  expect_error<Error>([] { LimitingResource(nullptr, 1); }, "limiting_resource: the upstream");
  expect_error<Error>([] { FailingResource{nullptr}; }, "failing_resource: the upstream");
  expect_error<Error>([] { DelayingResource(nullptr, 0us, 1us); }, "delaying_resource: the upstream");
  expect_error<Error>([] { DebugResource{nullptr}; }, "debug_resource: the upstream");
}

TEST_F(Adaptors, CountingCountsBlocksBytesAndFailures) {
  const auto limited = std::make_shared<LimitingResource>(make_cpu_resource(), 1000);
  CountingResource memory(limited);
  void* small = memory.allocate(100, stream_);
  void* large = memory.allocate(700, stream_);
  EXPECT_THROW(memory.allocate(201, stream_), OutOfMemory);
  memory.deallocate(large, 700, stream_);
  memory.deallocate(nullptr, 0, stream_);
  EXPECT_EQ(memory.allocate(0, stream_), nullptr);
  const CountingResource::Counts counts = memory.counts();
  EXPECT_EQ(counts.live_blocks, 1u);
  EXPECT_EQ(counts.live_bytes, 100u);
  EXPECT_EQ(counts.peak_bytes, 800u);
  EXPECT_EQ(counts.allocations, 2u);
  EXPECT_EQ(counts.total_bytes, 800u);
  EXPECT_EQ(counts.failures, 1u);
  memory.deallocate_after(small, 100, stream_, {});
  EXPECT_EQ(memory.counts().live_blocks, 0u);
  EXPECT_EQ(memory.counts().live_bytes, 0u);
}

TEST_F(Adaptors, LimitingRefusesWhatIsBeyondTheLimit) {
  LimitingResource memory(upstream_, 1000);
  void* data = memory.allocate(600, stream_);
  try {
    memory.allocate(401, stream_);
    FAIL() << "beyond the limit";
  } catch (const OutOfMemory& error) {
    EXPECT_STREQ(error.what(), "401 bytes are more than the limit of 1000 bytes leaves: 600 are live");
    EXPECT_EQ(error.figures().requested, 401u);
    EXPECT_EQ(error.figures().allocated, 600u);
    EXPECT_EQ(error.figures().reserved, 600u);
    EXPECT_EQ(error.figures().free, 400u);
    EXPECT_EQ(error.figures().total, 1000u);
  }
  EXPECT_THROW(memory.allocate(SIZE_MAX, stream_), OutOfMemory);
  memory.deallocate(memory.allocate(400, stream_), 400, stream_);
  memory.deallocate(data, 600, stream_);
  EXPECT_EQ(memory.live_bytes(), 0u);
  EXPECT_EQ(memory.limit_bytes(), 1000u);
}

TEST_F(Adaptors, LimitingGivesBackWhatTheUpstreamRefused) {
  const auto failing = std::make_shared<FailingResource>(upstream_, FailingOptions{.every_nth = 1});
  LimitingResource memory(failing, 1000);
  for (int i = 0; i < 3; ++i) EXPECT_THROW(memory.allocate(1000, stream_), OutOfMemory);
  failing->disarm();
  memory.deallocate(memory.allocate(1000, stream_), 1000, stream_);
  EXPECT_EQ(memory.live_bytes(), 0u);
}

TEST_F(Adaptors, LimitingIsExactUnderThreads) {
  using namespace std::chrono_literals;
  const auto slow = std::make_shared<DelayingResource>(upstream_, 0us, 20us);
  LimitingResource memory(slow, 1000);
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 200; ++i) {
        const std::size_t bytes = 1 + (i * 37 + static_cast<std::size_t>(t) * 101) % 500;
        try {
          memory.deallocate(memory.allocate(bytes, stream_), bytes, stream_);
        } catch (const OutOfMemory&) {
          ++refused;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(upstream_->counts().peak_bytes, 1000u);
  EXPECT_EQ(upstream_->counts().allocations + static_cast<std::size_t>(refused), 800u);
  EXPECT_EQ(memory.live_bytes(), 0u);
}

TEST_F(Adaptors, FailingFailsTheNthOrEveryNth) {
  FailingResource memory(upstream_);
  EXPECT_THAT(failures(memory, 3), ElementsAre(false, false, false));
  EXPECT_FALSE(memory.fired());
  memory.arm({.nth = 2});
  EXPECT_EQ(memory.allocate(0, stream_), nullptr);  // not counted
  EXPECT_THAT(failures(memory, 4), ElementsAre(false, true, false, false));
  EXPECT_TRUE(memory.fired());
  memory.arm({.nth = 1, .every_nth = 3});
  EXPECT_FALSE(memory.fired());
  EXPECT_THAT(failures(memory, 6), ElementsAre(true, false, true, false, false, true));
  memory.disarm();
  EXPECT_THAT(failures(memory, 3), ElementsAre(false, false, false));
  EXPECT_TRUE(memory.fired());
  EXPECT_EQ(upstream_->counts().live_blocks, 0u);
}

TEST_F(Adaptors, FailingAtRandomIsReproducible) {
  FailingResource memory(upstream_, {.probability = 0.25, .seed = 7});
  const std::vector<bool> first = failures(memory, 1000);
  const auto failed = std::count(first.begin(), first.end(), true);
  EXPECT_NEAR(static_cast<double>(failed), 250, 70);  // five standard deviations
  memory.arm({.probability = 0.25, .seed = 7});
  EXPECT_EQ(failures(memory, 1000), first);
  memory.arm({.probability = 0.25, .seed = 8});
  EXPECT_NE(failures(memory, 1000), first);
  memory.arm({.probability = 1});
  EXPECT_EQ(failures(memory, 100), std::vector<bool>(100, true));
  expect_error<Error>([&] { memory.arm({.probability = 1.5}); },
                      "failing_resource: the probability (1.5) must be in [0, 1]");
  expect_error<Error>([&] { memory.arm({.probability = kNan}); }, "must be in [0, 1]");
}

TEST_F(Adaptors, DelayingSleepsBeforeBothCalls) {
  using namespace std::chrono_literals;
  DelayingResource memory(upstream_, 2ms, 3ms);
  const auto begin = std::chrono::steady_clock::now();
  memory.deallocate(memory.allocate(10, stream_), 10, stream_);
  memory.deallocate_after(memory.allocate(10, stream_), 10, stream_, {});
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 8ms);
  expect_error<Error>([&] { DelayingResource(upstream_, 2us, 1us); }, "(2 to 1 us)");
  expect_error<Error>([&] { DelayingResource(upstream_, -1us, 1us); }, "must not be negative");
}

/// A program's allocator, that counts and can misbehave.
struct Host {
  alignas(512) unsigned char memory[1024];
  std::size_t offset = 0;
  int live = 0;
  std::vector<std::string> calls;
  std::function<void()> before_allocate = [] {};
  std::function<void()> after_deallocate = [] {};

  AllocatorCallbacks callbacks() {
    return {.allocate = [this](std::size_t bytes, std::size_t alignment, void* stream) -> void* {
              before_allocate();
              calls.push_back("allocate " + std::to_string(bytes) + " " + std::to_string(alignment));
              EXPECT_EQ(stream, nullptr);
              if (bytes > sizeof memory - offset) return nullptr;
              ++live;
              return memory + offset;
            },
            .deallocate =
                [this](void* data, std::size_t bytes, void* stream) {
                  EXPECT_EQ(data, memory + offset);
                  EXPECT_EQ(stream, nullptr);
                  calls.push_back("deallocate " + std::to_string(bytes));
                  --live;
                  after_deallocate();
                }};
  }
};

TEST_F(Adaptors, CallbacksServeAllRequests) {
  Host host;
  CallbackResource memory(Device::cpu(), MemoryKind::pinned, host.callbacks());
  EXPECT_EQ(memory.device(), Device::cpu());
  EXPECT_EQ(memory.kind(), MemoryKind::pinned);
  void* data = memory.allocate(100, stream_);
  EXPECT_EQ(data, host.memory);
  memory.deallocate(data, 100, stream_);
  EXPECT_THAT(host.calls, ElementsAre("allocate 100 256", "deallocate 100"));
  EXPECT_EQ(memory.allocate(0, stream_), nullptr);
  memory.deallocate(nullptr, 0, stream_);
  EXPECT_EQ(host.calls.size(), 2u);
}

TEST_F(Adaptors, CallbacksMayRefuseOrThrow) {
  Host host;
  CallbackResource memory(Device::cpu(), MemoryKind::host, host.callbacks());
  try {
    memory.allocate(2000, stream_);
    FAIL() << "no exception";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.figures().requested, 2000u);
  }
  host.before_allocate = [] { throw std::domain_error("the program's own"); };
  EXPECT_THROW(memory.allocate(1, stream_), std::domain_error);
  host.before_allocate = [] {};
  host.after_deallocate = [] { throw std::domain_error("dropped"); };
  memory.deallocate(memory.allocate(1, stream_), 1, stream_);
  EXPECT_EQ(host.live, 0);
}

TEST_F(Adaptors, MisalignedMemoryFromACallbackIsGivenBack) {
  Host host;
  host.offset = 64;
  CallbackResource memory(Device::cpu(), MemoryKind::host, host.callbacks());
  std::ostringstream address;
  address << static_cast<void*>(host.memory + 64);
  expect_error<Error>([&] { memory.allocate(100, stream_); },
                      "callback_resource: the address (" + address.str() + ") must be a multiple of 256");
  EXPECT_EQ(host.live, 0);
}

TEST_F(Adaptors, CallbacksAreCheckedWhenGiven) {
  Host host;
  AllocatorCallbacks half = host.callbacks();
  half.deallocate = nullptr;
  expect_error<Error>([&] { CallbackResource(Device::cpu(), MemoryKind::host, half); }, "both callbacks");
  expect_error<Error>([&] { CallbackResource(Device::cpu(), MemoryKind::device, host.callbacks()); },
                      "the device is cpu");
  expect_error<DeviceError>(
      [&] { CallbackResource(Device::cuda(1000), MemoryKind::device, host.callbacks()); },
      "callback_resource");
}

}  // namespace
}  // namespace burin::test
