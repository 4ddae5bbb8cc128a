// Captures and the caching pool: what is allocated while a stream is being captured, and what must not happen
// then.

#include <burin/runtime/buffer.h>
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

TEST_F(PoolCapture, AStreamThatEndsWithinACaptureLeavesEagerWorkAsItWas) {
  if (!fake()) GTEST_SKIP() << "a stream that a capture still uses is destroyed on the fake device only";
  free(allocate(4 * kMiB, *other_), *other_);
  Recording recording(pool_->make_graph_pool(), *stream_);
  other_->wait(stream_->view());
  stream_->wait(other_->view());
  other_.reset();
  EXPECT_EQ(recording.end(), cudaSuccess);
  for (std::size_t size = 2; size < 12; size += 3) free(allocate(size * kMiB, *stream_), *stream_);
}

TEST_F(PoolCapture, NothingJoinsACaptureForAFreeOfNoBytes) {
  Recording recording(pool_->make_graph_pool(), *stream_);
  pool_->deallocate_after(nullptr, 0, *other_, std::array{stream_->view()});
  make_cuda_resource(0)->deallocate_after(nullptr, 0, *other_, std::array{stream_->view()});
  EXPECT_EQ(cuda::capture_id(*other_), 0u);
  EXPECT_EQ(recording.end(), cudaSuccess);
}

TEST_F(PoolCapture, WhatIsFreedInAnInvalidatedCaptureServesAgain) {
  void* eager = allocate(4 * kMiB, *other_);
  {
    Recording recording(pool_->make_graph_pool(), *stream_);
    other_->wait(stream_->view());
    void* captured = allocate(4 * kMiB, *stream_);
    cuda::ignore(cuda::api().cudaStreamSynchronize(native(*stream_)));
    const Stream third(Device::cuda());
    pool_->deallocate_after(eager, 4 * kMiB, third, std::array{stream_->view()});
    pool_->deallocate_after(captured, 4 * kMiB, *stream_, std::array{other_->view()});
    EXPECT_NE(recording.end(), cudaSuccess);
  }
  EXPECT_EQ(pool_->stats().allocated_bytes.current, 0u);
  pool_->trim();
  EXPECT_EQ(reserved(), 0u);
}

TEST_F(PoolCapture, WhatAnEndedStreamQueuedComesBeforeReuseAfterACapture) {
  pool_->set_limit_bytes(6 * kMiB);
  const auto pinned = make_pinned_resource();
  const Stream host(Device::cpu());
  auto* copied = static_cast<unsigned char*>(pinned->allocate(4 * kMiB, host));
  int overwritten = 0;
  for (int i = 0; i < 50; ++i) {
    std::optional<Stream> ended(Device::cuda());
    std::optional<Stream> next;
    void* block = allocate(4 * kMiB, *ended);
    clear(*ended, block, 4 * kMiB);
    {
      Recording recording(pool_->make_graph_pool(), *stream_);
      for (int k = 0; k < 3; ++k) cuda::copy_bytes(*ended, copied, block, 4 * kMiB);
      pool_->deallocate_after(block, 4 * kMiB, *ended, std::array{stream_->view()});
      ended.reset();
      next.emplace(Device::cuda());  // which the pool must not take for the ended one
      free(allocate(kMiB, *next), *next);
      EXPECT_EQ(recording.end(), cudaSuccess);
    }
    stream_->synchronize();
    void* again = allocate(4 * kMiB, *next);
    BURIN_CUDA("test", cudaMemsetAsync, again, 7, 4 * kMiB, native(*next));
    next->synchronize();
    synchronize(Device::cuda());
    overwritten += copied[0] != 0;
    free(again, *next);
    pool_->trim();
  }
  EXPECT_EQ(overwritten, 0);
  pinned->deallocate(copied, 4 * kMiB, host);
}

TEST_F(PoolCapture, ABlockWhoseEventsCannotBeRecordedIsWaitedForInTheEnd) {
  if (!fake()) GTEST_SKIP() << "calls fail on demand on the fake device only";
  for (const char* call : {"cudaEventRecord", "cudaEventCreateWithFlags"}) {
    void* block = allocate(4 * kMiB, *other_);
    {
      const auto route = std::make_unique<CaptureRoute>(pool_->make_graph_pool());
      BURIN_CUDA("capture", cudaStreamBeginCapture, native(*stream_), cudaStreamCaptureModeThreadLocal);
      route->bind(cuda::capture_id(*stream_));
      pool_->deallocate_after(block, 4 * kMiB, *other_, std::array{stream_->view()});
      cudaGraph_t graph = nullptr;
      BURIN_CUDA("capture", cudaStreamEndCapture, native(*stream_), &graph);
      cuda::ignore(cuda::api().cudaGraphDestroy(graph));
      clear(*stream_, block, 4 * kMiB);
      fake()->fail_call(1, cudaErrorInvalidValue, false, call);
    }
    EXPECT_TRUE(fake()->has_failed());
    fake()->fail_call(0, cudaSuccess);
    pool_ = std::make_shared<CachingPool>(Device::cuda());
    synchronize(Device::cuda());  // what the pool did not wait for is a violation
  }
}

TEST_F(PoolCapture, WrappedMemoryIsGivenBackBesideAndAfterACapture) {
  void* data = allocate(kMiB, *other_);
  int given_back = 0;
  const auto wrap = [&](StreamView user) {
    Buffer::wrap(data, kMiB, Device::cuda(), [&](void*) { ++given_back; })->record_use(user);
  };
  {
    clear(*other_, data, kMiB);
    Recording recording(pool_->make_graph_pool(), *stream_);
    wrap(*other_);
    wrap(*stream_);
    clear(*stream_, data, kMiB);
    EXPECT_EQ(recording.end(), cudaSuccess) << "an event was asked for";
  }
  other_->synchronize();
  EXPECT_EQ(given_back, 1);
  for (int i = 0; i < 2; ++i) stream_->synchronize();  // the first records the event
  EXPECT_EQ(given_back, 2);
  clear(*other_, data, kMiB);
  wrap(*other_);
  free(data, *other_);
  Recording recording(pool_->make_graph_pool(), *stream_);
  other_.reset();  // waits
  EXPECT_EQ(given_back, 3);
  EXPECT_EQ(recording.end(), cudaSuccess);
}

TEST_F(PoolCapture, OtherPoolsAreTrimmedBesideACapture) {
  CachingPool other(Device::cuda());
  void* first = other.allocate(4 * kMiB, *stream_);
  void* second = other.allocate(4 * kMiB, *other_);
  other.deallocate(first, 0, *stream_);
  other.deallocate(second, 0, *other_);
  {
    Recording recording(pool_->make_graph_pool(), *stream_);
    EXPECT_EQ(other.trim(), 4 * kMiB) << "what the captured stream may use stays";
    EXPECT_EQ(recording.end(), cudaSuccess);
  }
  EXPECT_EQ(other.trim(), 4 * kMiB);
}

TEST_F(PoolCapture, AUsedPoolIsRecordedToBesideAnotherCaptureOfTheThread) {
  const GraphPool used = pool_->make_graph_pool();
  void* data = nullptr;
  {
    Recording recording(used, *stream_);
    data = allocate(4 * kMiB, *stream_);
    EXPECT_EQ(recording.end(), cudaSuccess);
  }
  clear(*stream_, data, 4 * kMiB);
  free(data, *stream_);
  Recording outer(pool_->make_graph_pool(), *other_);
  Recording inner(used, *stream_);
  EXPECT_EQ(inner.end(), cudaSuccess);
  EXPECT_EQ(outer.end(), cudaSuccess);
}

TEST_F(PoolCapture, CapturesThatThePoolKnowsNothingOfLeaveItUsable) {
  void* data = allocate(4 * kMiB, *other_);
  BURIN_CUDA("capture", cudaStreamBeginCapture, native(*stream_), cudaStreamCaptureModeThreadLocal);
  clear(*stream_, data, 4 * kMiB);
  pool_->deallocate_after(data, 4 * kMiB, *other_, std::array{stream_->view()});
  free(allocate(8 * kMiB, *other_), *other_);
  cudaGraph_t graph = nullptr;
  BURIN_CUDA("capture", cudaStreamEndCapture, native(*stream_), &graph);
  cuda::ignore(cuda::api().cudaGraphDestroy(graph));
  for (std::size_t size = 4; size < 16; size += 3) free(allocate(size * kMiB, *other_), *other_);
  pool_->trim();
  EXPECT_EQ(reserved(), 0u);
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
