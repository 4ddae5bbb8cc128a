#pragma once
// What tests of streams, memory and copies share: they run on a GPU, and on the fake device where there is
// none.

#include <burin/runtime/cuda/cuda_calls.h>
#include <support/fake_cuda.h>
#include <support/test_support.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

namespace burin::test {

/// A test body on cuda:0: a GPU or, where there is none or BURIN_TEST_FAKE_CUDA is set, the fake device.
/// Everything that it makes must be gone when it ends.
class OnCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (takes_fake_cuda()) fake_ = std::make_unique<FakeCuda>();
  }
  void TearDown() override {
    if (!fake_) return;
    EXPECT_THAT(fake_->violations(), ::testing::IsEmpty());
    EXPECT_EQ(fake_->live(), FakeCuda::Live());
  }

  /// nullptr on a GPU.
  FakeCuda* fake() { return fake_.get(); }
  static Context make_context(std::shared_ptr<MemoryResource> memory = nullptr, int device = 0,
                              std::shared_ptr<MemoryResource> pinned = nullptr) {
    ContextOptions options;
    options.memory = std::move(memory);
    options.pinned = std::move(pinned);
    options.threads = 1;
    return Context(Device::cuda(device), std::move(options));
  }
  /// Keeps the context's stream busy for about a millisecond. The fake device is late in any case.
  void delay(Context& ctx) {
    if (fake_) return;
    constexpr std::int64_t kBytes = std::int64_t{64} << 20;
    const Tensor from = zeros(ctx, {kBytes}, DType::u8);
    Tensor to = empty(ctx, {kBytes}, DType::u8);
    for (int i = 0; i < 20; ++i) cuda::copy_bytes(ctx.stream(), to.raw(), from.raw(), kBytes);
  }

 private:
  std::unique_ptr<FakeCuda> fake_;
};

/// Hands out again at once what was freed last, as the contract of MemoryResource allows on one stream; all
/// allocations are taken to be on one. Notes how many streams the last freed block was used by besides.
class ReusingResource final : public MemoryResource {
 public:
  explicit ReusingResource(std::shared_ptr<MemoryResource> upstream) : upstream_(std::move(upstream)) {}
  ~ReusingResource() override {
    for (const auto& [data, bytes] : free_) upstream_->deallocate(data, bytes, {});
  }
  void* allocate(std::size_t bytes, StreamView stream) override {
    {
      const std::lock_guard lock(mutex_);
      for (auto block = free_.rbegin(); block != free_.rend(); ++block) {
        if (block->second != bytes) continue;
        void* data = block->first;
        free_.erase(std::next(block).base());
        return data;
      }
    }
    return upstream_->allocate(bytes, stream);
  }
  void deallocate(void* data, std::size_t bytes, StreamView) noexcept override {
    const std::lock_guard lock(mutex_);
    free_.emplace_back(data, bytes);
  }
  void deallocate_after(void* data, std::size_t bytes, StreamView stream,
                        std::span<const StreamView> users) noexcept override {
    last_users_ = users.size();
    MemoryResource::deallocate_after(data, bytes, stream, users);
  }
  Device device() const noexcept override { return upstream_->device(); }
  MemoryKind kind() const noexcept override { return upstream_->kind(); }
  std::size_t last_users() const { return last_users_; }

 private:
  std::shared_ptr<MemoryResource> upstream_;
  std::mutex mutex_;
  std::vector<std::pair<void*, std::size_t>> free_;
  std::size_t last_users_ = 0;
};

}  // namespace burin::test
