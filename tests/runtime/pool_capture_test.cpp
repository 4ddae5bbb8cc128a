// Captures and the caching pool: what is allocated while a stream is being captured, and what must not happen
// then.

#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/event.h>
#include <burin/runtime/memory/caching_pool.h>
#include <burin/runtime/memory/capture_route.h>
#include <support/cuda_fixture.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

namespace burin::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

cudaStream_t native(StreamView stream) { return static_cast<cudaStream_t>(stream.native_handle()); }

/// One capture into a graph pool, in the order that a capture must keep.
class Recording {
 public:
  Recording(const GraphPool& pool, StreamView stream) : route_(std::in_place, pool), stream_(stream) {
    BURIN_CUDA("capture", cudaStreamBeginCapture, native(stream), cudaStreamCaptureModeThreadLocal);
    route_->bind(cuda::capture_id(stream));
  }
  ~Recording() {
    if (route_) end();
  }
  /// What cudaStreamEndCapture returned.
  cudaError_t end() {
    cudaGraph_t graph = nullptr;
    const cudaError_t code = cuda::api().cudaStreamEndCapture(native(stream_), &graph);
    cuda::ignore(code);
    route_.reset();
    if (graph) cuda::ignore(cuda::api().cudaGraphDestroy(graph));
    return code;
  }

 private:
  std::optional<CaptureRoute> route_;
  StreamView stream_;
};

void clear(StreamView stream, void* data, std::size_t bytes) {
  BURIN_CUDA("test", cudaMemsetAsync, data, 0, bytes, native(stream));
}

class PoolCapture : public OnCuda {
 protected:
  void SetUp() override {
    OnCuda::SetUp();
    pool_ = std::make_shared<CachingPool>(Device::cuda());
    stream_.emplace(Device::cuda());
    other_.emplace(Device::cuda());
  }
  void TearDown() override {
    stream_.reset();
    other_.reset();
    pool_.reset();
    OnCuda::TearDown();
  }
  std::size_t reserved() { return pool_->stats().reserved_bytes.current; }
  void* allocate(std::size_t bytes, StreamView stream) { return pool_->allocate(bytes, stream); }
  void free(void* data, StreamView stream) { pool_->deallocate(data, 0, stream); }

  std::shared_ptr<CachingPool> pool_;
  std::optional<Stream> stream_;
  std::optional<Stream> other_;
};

TEST_F(PoolCapture, ACaptureHasMemoryOfItsOwn) {
  void* eager = allocate(kMiB, *stream_);
  free(eager, *stream_);
  const GraphPool graph_pool = pool_->make_graph_pool();
  void* captured = nullptr;
  {
    Recording recording(graph_pool, *stream_);
    captured = allocate(kMiB, *stream_);
    EXPECT_NE(captured, eager) << "the free block of eager work";
    void* outside = allocate(kMiB, *other_);  // a stream that is not captured
    EXPECT_NE(outside, captured);
    EXPECT_EQ(graph_pool.allocated_bytes(), kMiB);
    free(outside, *other_);
    clear(*stream_, captured, kMiB);
    free(captured, *stream_);
    EXPECT_EQ(allocate(kMiB, *stream_), captured) << "reuse within the capture";
    free(captured, *stream_);
    EXPECT_EQ(recording.end(), cudaSuccess);
  }
  EXPECT_GE(graph_pool.reserved_bytes(), kMiB);
  EXPECT_EQ(graph_pool.allocated_bytes(), 0u);
  void* later = allocate(kMiB, *stream_);
  EXPECT_NE(later, captured) << "a graph holds that address";
  free(later, *stream_);
  Recording again(graph_pool, *other_);
  EXPECT_EQ(allocate(kMiB, *other_), captured) << "graphs that share a pool share its memory";
  free(captured, *other_);
  EXPECT_EQ(again.end(), cudaSuccess);
}

TEST_F(PoolCapture, StreamsThatJoinACaptureAreServedByItsId) {
  const GraphPool graph_pool = pool_->make_graph_pool();
  Recording recording(graph_pool, *stream_);
  Event forked(Device::cuda(), {.timing = false});
  forked.record(*stream_);
  other_->wait(forked);
  void* data = allocate(4 * kMiB, *other_);
  EXPECT_EQ(graph_pool.allocated_bytes(), 4 * kMiB);
  clear(*other_, data, 4 * kMiB);
  free(data, *other_);
  Event joined(Device::cuda(), {.timing = false});
  joined.record(*other_);
  stream_->wait(joined);
  EXPECT_EQ(recording.end(), cudaSuccess);
}

TEST_F(PoolCapture, MemoryLivesUntilHandlesAndTensorsAreGone) {
  GraphPool graph_pool = pool_->make_graph_pool();
  void* kept = nullptr;
  {
    Recording recording(graph_pool, *stream_);
    kept = allocate(4 * kMiB, *stream_);
    free(allocate(16 * kMiB, *stream_), *stream_);
    clear(*stream_, kept, 4 * kMiB);
    EXPECT_EQ(recording.end(), cudaSuccess);
  }
  pool_->trim();
  EXPECT_GE(reserved(), 20 * kMiB) << "graphs hold the addresses of free blocks";
  graph_pool = GraphPool();
  pool_->trim();
  EXPECT_LE(reserved(), 12 * kMiB) << "only the tensor holds memory now";
  EXPECT_GE(reserved(), 4 * kMiB);
  free(kept, *stream_);
  EXPECT_EQ(reserved(), 0u);
}

TEST_F(PoolCapture, CapturesIntoOnePoolTakeTurns) {
  const GraphPool graph_pool = pool_->make_graph_pool();
  Recording recording(graph_pool, *stream_);
  expect_error<CaptureError>([&] { Recording second(graph_pool, *other_); },
                             "being recorded to by another capture");
  Recording elsewhere(pool_->make_graph_pool(), *other_);
  EXPECT_EQ(elsewhere.end(), cudaSuccess);
  EXPECT_EQ(recording.end(), cudaSuccess);
  expect_error<CaptureError>([&] { CaptureRoute route{GraphPool()}; }, "no graph pool");
}

TEST_F(PoolCapture, GrowsWithinACaptureFromPlainSegmentsToo) {
  pool_ = std::make_shared<CachingPool>(make_cuda_resource(0));
  const GraphPool graph_pool = pool_->make_graph_pool();
  Recording recording(graph_pool, *stream_);
  void* data = allocate(8 * kMiB, *stream_);
  clear(*stream_, data, 8 * kMiB);
  free(data, *stream_);
  EXPECT_EQ(recording.end(), cudaSuccess);
}

TEST_F(PoolCapture, G1_OtherThreadsFreeAndTrimWhileACaptureEnds) {
  const GraphPool graph_pool = pool_->make_graph_pool();
  std::atomic<bool> done{false};
  std::thread thread([&] {
    for (int i = 0; !done; ++i) {
      void* a = allocate(kMiB, *other_);
      void* b = allocate(3 * kMiB, *other_);
      free(a, *other_);
      free(b, *other_);
      if (i % 64 == 0) pool_->trim();
    }
  });
  int invalidated = 0;
  for (int i = 0; i < 10'000; ++i) {
    Recording recording(graph_pool, *stream_);
    void* data = allocate(kMiB, *stream_);
    clear(*stream_, data, kMiB);
    free(data, *stream_);
    invalidated += recording.end() != cudaSuccess;
  }
  done = true;
  thread.join();
  EXPECT_EQ(invalidated, 0);
}

TEST_F(PoolCapture, G2_AFullPoolEndsInOutOfMemoryAndNothingIsFreedInTheCapture) {
  void* eager = allocate(4 * kMiB, *stream_);
  free(allocate(4 * kMiB, *other_), *other_);
  pool_->set_limit_bytes(reserved());
  const std::size_t before = reserved();
  const GraphPool graph_pool = pool_->make_graph_pool();
  {
    Recording recording(graph_pool, *stream_);
    try {
      allocate(2 * kMiB, *stream_);
      ADD_FAILURE() << "beyond the limit";
    } catch (const OutOfMemory& error) {
      EXPECT_EQ(error.figures().requested, 2 * kMiB);
      EXPECT_EQ(error.figures().reserved, before);
    }
    EXPECT_EQ(pool_->trim(), 0u);
    EXPECT_EQ(reserved(), before);
    EXPECT_EQ(recording.end(), cudaSuccess);
  }
  clear(*stream_, eager, 4 * kMiB);
  stream_->synchronize();
  free(eager, *stream_);
  EXPECT_EQ(pool_->trim(), before);
}

TEST_F(PoolCapture, G3_BlocksFreedDuringACaptureWaitForItsEnd) {
  void* block = allocate(4 * kMiB, *other_);
  pool_->set_limit_bytes(reserved());
  {
    Recording recording(pool_->make_graph_pool(), *stream_);
    clear(*stream_, block, 4 * kMiB);
    pool_->deallocate_after(block, 4 * kMiB, *other_, std::array{stream_->view()});
    for (const Stream* stream : {&*other_, &*stream_})
      EXPECT_THROW(allocate(4 * kMiB, *stream), OutOfMemory) << "its last use has not even run";
    EXPECT_EQ(recording.end(), cudaSuccess);
  }
  EXPECT_EQ(allocate(4 * kMiB, *other_), block);
  free(block, *other_);

  // Freed on the captured stream itself: other streams cannot wait for it yet.
  block = allocate(4 * kMiB, *stream_);
  {
    Recording recording(pool_->make_graph_pool(), *stream_);
    clear(*stream_, block, 4 * kMiB);
    free(block, *stream_);
    EXPECT_THROW(allocate(4 * kMiB, *other_), OutOfMemory);
    EXPECT_EQ(recording.end(), cudaSuccess);
  }
  EXPECT_EQ(allocate(4 * kMiB, *other_), block);
  free(block, *other_);
}

TEST_F(PoolCapture, PinnedMemoryThatACaptureUsesServesAgainAfterIt) {
  const auto pinned = make_pinned_pool();
  const Stream host(Device::cpu());
  void* device = allocate(4 * kMiB, *other_);
  void* block = pinned->allocate(4 * kMiB, host);
  pinned->set_limit_bytes(pinned->stats().reserved_bytes.current);
  {
    Recording recording(pool_->make_graph_pool(), *stream_);
    cuda::copy_bytes(*stream_, device, block, 4 * kMiB);
    pinned->deallocate_after(block, 4 * kMiB, host, std::array{stream_->view()});
    EXPECT_THROW(pinned->allocate(4 * kMiB, host), OutOfMemory);
    EXPECT_EQ(pinned->trim(), 0u);
    EXPECT_EQ(recording.end(), cudaSuccess);
  }
  EXPECT_EQ(pinned->allocate(4 * kMiB, host), block);
  pinned->deallocate(block, 4 * kMiB, host);
  free(device, *other_);
}

TEST_F(PoolCapture, WhatWasFreedBesideACaptureIsWaitedForBeforeTheNext) {
  const GraphPool graph_pool = pool_->make_graph_pool();
  void* output = nullptr;
  {
    Recording first(graph_pool, *stream_);
    output = allocate(64 * kMiB, *stream_);
    clear(*stream_, output, 64 * kMiB);
    EXPECT_EQ(first.end(), cudaSuccess);
  }
  {
    Recording second(graph_pool, *stream_);
    for (int i = 0; i < 50; ++i) clear(*other_, output, 64 * kMiB);
    free(output, *other_);
    EXPECT_EQ(second.end(), cudaSuccess);
  }
  Recording third(graph_pool, *stream_);
  if (fake()) {
    EXPECT_EQ(fake()->pending(), 0u);
  } else {
    const cuda::BesideCapture beside;
    EXPECT_TRUE(other_->view().is_idle());
  }
  EXPECT_EQ(allocate(64 * kMiB, *stream_), output);
  free(output, *stream_);
  EXPECT_EQ(third.end(), cudaSuccess);
}

TEST_F(PoolCapture, AStreamThatEndsWithinACaptureLeavesItsMemoryToTheNext) {
  if (!fake()) GTEST_SKIP() << "about what the pool asks of the device, which the fake one tells";
  const GraphPool graph_pool = pool_->make_graph_pool();
  void* data = nullptr;
  {
    Recording recording(graph_pool, *stream_);
    other_->wait(stream_->view());
    data = allocate(4 * kMiB, *other_);
    clear(*other_, data, 4 * kMiB);
    free(data, *other_);
    stream_->wait(other_->view());
    other_.reset();
    EXPECT_EQ(recording.end(), cudaSuccess);
  }
  Recording elsewhere(pool_->make_graph_pool(), *stream_);
  const Stream third(Device::cuda());
  Recording again(graph_pool, third);
  EXPECT_EQ(fake()->call_count("cudaDeviceSynchronize"), 0u) << "it would end the other capture";
  EXPECT_EQ(allocate(4 * kMiB, third), data);
  free(data, third);
  EXPECT_EQ(again.end(), cudaSuccess);
  EXPECT_EQ(elsewhere.end(), cudaSuccess);
}

TEST_F(PoolCapture, G14_FailedCapturesLeaveNothing) {
  free(allocate(4 * kMiB, *stream_), *stream_);
  const std::size_t before = reserved();
  pool_->set_limit_bytes(64 * kMiB);
  for (int i = 0; i < 1000; ++i) {
    Recording recording(pool_->make_graph_pool(), *stream_);
    void* data = allocate(8 * kMiB, *stream_);
    clear(*stream_, data, 8 * kMiB);
    EXPECT_THROW(allocate(kMiB << 20, *stream_), OutOfMemory);
    if (i % 2 == 0) {  // invalidated besides
      cuda::ignore(cuda::api().cudaStreamSynchronize(native(*stream_)));
      EXPECT_NE(recording.end(), cudaSuccess);
    }
    free(data, *stream_);
  }
  EXPECT_EQ(reserved(), before);
  EXPECT_EQ(pool_->trim(), before);
  EXPECT_EQ(reserved(), 0u);
}

TEST_F(PoolCapture, G18_BlocksReturnWhenStreamsJoin) {
  const GraphPool graph_pool = pool_->make_graph_pool();
  Recording recording(graph_pool, *stream_);
  std::set<void*> seen;
  for (int i = 0; i < 100; ++i) {
    void* data = allocate(8 * kMiB, *stream_);
    seen.insert(data);
    clear(*stream_, data, 8 * kMiB);
    Event forked(Device::cuda(), {.timing = false});
    forked.record(*stream_);
    other_->wait(forked);
    clear(*other_, data, 8 * kMiB);
    pool_->deallocate_after(data, 8 * kMiB, *stream_, std::array{other_->view()});
    Event joined(Device::cuda(), {.timing = false});
    joined.record(*other_);
    stream_->wait(joined);
  }
  EXPECT_EQ(seen.size(), 1u);
  EXPECT_EQ(graph_pool.reserved_bytes(), 8 * kMiB);
  EXPECT_EQ(recording.end(), cudaSuccess);
}

}  // namespace
}  // namespace burin::test
