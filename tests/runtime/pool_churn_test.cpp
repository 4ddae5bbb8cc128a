// CachingPool while everything about it changes: streams end and others take their place, blocks pass between
// threads and streams, captures begin, fail and end, the limit moves, the pool is trimmed and looked at. What
// a block held is read back by work queued before its release, so memory that is handed out too early shows.

#include <burin/runtime/buffer.h>
#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/memory/caching_pool.h>
#include <burin/runtime/memory/capture_route.h>
#include <support/cuda_fixture.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace burin::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

cudaStream_t native(StreamView stream) { return static_cast<cudaStream_t>(stream.native_handle()); }

struct Held {
  std::shared_ptr<Buffer> buffer;
  std::shared_ptr<Stream> stream;
};

/// What is queued to be read back.
struct Read {
  std::shared_ptr<Buffer> host;
  std::uint64_t expected;
  std::shared_ptr<Stream> stream;
};

std::uint64_t mark_of(const Buffer& buffer) {
  return reinterpret_cast<std::uint64_t>(buffer.data()) ^ buffer.bytes();
}

class PoolChurn : public OnCuda, public ::testing::WithParamInterface<std::uint64_t> {
 protected:
  void run(std::shared_ptr<MemoryResource> upstream) {
    const CachingPoolOptions options{.limit_bytes = 128 * kMiB, .timeline_events = GetParam() % 2 * 64};
    pool_ = upstream ? std::make_shared<CachingPool>(std::move(upstream), options)
                     : std::make_shared<CachingPool>(Device::cuda(), options);
    pinned_ = make_pinned_pool();
    for (std::shared_ptr<Stream>& stream : streams_) stream = std::make_shared<Stream>(Device::cuda());

    std::atomic<bool> done{false};
    std::vector<std::thread> workers;
    std::vector<std::thread> capturers;
    for (std::uint64_t i = 0; i < 6; ++i) workers.emplace_back([this, i] { work(GetParam() * 100 + i); });
    for (std::uint64_t i = 0; i < 2; ++i)
      capturers.emplace_back([this, i, &done] { capture_until(done, GetParam() * 100 + 50 + i); });
    for (std::thread& thread : workers) thread.join();
    done = true;
    for (std::thread& thread : capturers) thread.join();
    handed_over_.clear();

    EXPECT_EQ(wrong_, 0) << "memory was overwritten while in use";
    EXPECT_EQ(broken_captures_, 0);
    const PoolStats stats = pool_->stats();
    EXPECT_EQ(stats.allocated_bytes.current, 0u);
    EXPECT_EQ(stats.requested_bytes, 0u);
    EXPECT_EQ(stats.invalid_frees, 0u);
    for (std::shared_ptr<Stream>& stream : streams_) stream.reset();
    pool_->trim();
    EXPECT_EQ(pool_->stats().reserved_bytes.current, 0u);
    pool_.reset();
    pinned_.reset();
  }

 private:
  std::shared_ptr<Stream> any_stream(Random& random) {
    const std::lock_guard lock(mutex_);
    return streams_[static_cast<std::size_t>(random.integer(0, kStreams - 1))];
  }

  void replace_stream(Random& random) {
    auto fresh = std::make_shared<Stream>(Device::cuda());
    const std::lock_guard lock(mutex_);
    streams_[static_cast<std::size_t>(random.integer(0, kStreams - 1))].swap(fresh);
  }

  void disturb(Random& random) {
    if (random.chance(0.02)) replace_stream(random);
    if (random.chance(0.002)) pool_->trim(static_cast<std::size_t>(random.integer(0, 64)) * kMiB);
    if (random.chance(0.002))
      pool_->set_limit_bytes(static_cast<std::size_t>(random.integer(40, 128)) * kMiB);
    if (random.chance(0.002)) pool_->stats();
    if (random.chance(0.001)) {
      pool_->snapshot();
      pool_->timeline();
      pool_->reset_peaks();
    }
  }

  Held make(Random& random, StreamView host) {
    constexpr std::size_t kUsual[] = {256, 4096, 100000, kMiB, 3 * kMiB};
    const std::size_t bytes = random.chance(0.7) ? random.choice(kUsual)
                                                 : static_cast<std::size_t>(std::exp2(random.real(3.1, 22)));
    Held held{nullptr, any_stream(random)};
    held.buffer = Buffer::allocate(pool_, bytes, *held.stream);
    const auto source = Buffer::allocate(pinned_, 8, host);
    source->record_use(*held.stream);
    *static_cast<std::uint64_t*>(source->data()) = mark_of(*held.buffer);
    cuda::copy_bytes(*held.stream, held.buffer->data(), source->data(), 8);
    return held;
  }

  /// Reads it on its own stream or on another, and lets it go.
  Read read_and_drop(Held held, Random& random, StreamView host) {
    Read read{Buffer::allocate(pinned_, 8, host), mark_of(*held.buffer), held.stream};
    if (random.chance(0.3)) {
      read.stream = any_stream(random);
      read.stream->wait(held.stream->view());
      held.buffer->record_use(*read.stream);
    }
    read.host->record_use(*read.stream);
    *static_cast<std::uint64_t*>(read.host->data()) = 0;
    cuda::copy_bytes(*read.stream, read.host->data(), held.buffer->data(), 8);
    return read;
  }

  void check(std::vector<Read>& reads) {
    for (const Read& read : reads) {
      read.stream->synchronize();
      wrong_ += *static_cast<std::uint64_t*>(read.host->data()) != read.expected;
    }
    reads.clear();
  }

  void work(std::uint64_t seed) {
    Random random(seed);
    const Stream host(Device::cpu());
    std::vector<Held> live;
    std::vector<Read> reads;
    for (int i = 0; i < 1500; ++i) {
      disturb(random);
      try {
        live.push_back(make(random, host));
      } catch (const OutOfMemory&) {  // at the limit
      }
      while (live.size() > 12 || (!live.empty() && random.chance(0.4))) {
        std::swap(live[static_cast<std::size_t>(random.integer(0, std::ssize(live) - 1))], live.back());
        Held held = std::move(live.back());
        live.pop_back();
        if (random.chance(0.2)) {
          const std::lock_guard lock(mutex_);
          handed_over_.push_back(std::move(held));
          held = std::move(handed_over_.front());
          handed_over_.pop_front();
        }
        reads.push_back(read_and_drop(std::move(held), random, host));
      }
      if (reads.size() > 200) check(reads);
    }
    for (Held& held : live) reads.push_back(read_and_drop(std::move(held), random, host));
    check(reads);
  }

  /// Blocks of the capture, on two streams, some of which outlive it, and one of eager work.
  void fill(std::deque<std::shared_ptr<Buffer>>& kept, Random& random, StreamView main, StreamView side) {
    for (int i = 0; i < 6; ++i) {
      const StreamView stream = i % 2 ? main : side;
      const auto buffer = Buffer::allocate(pool_, std::size_t{1} << random.integer(8, 22), stream);
      BURIN_CUDA("test", cudaMemsetAsync, buffer->data(), 0, buffer->bytes(), native(stream));
      if (random.chance(0.5)) buffer->record_use(side);
      if (random.chance(0.3)) kept.push_back(buffer);
    }
    Held eager;
    const std::lock_guard lock(mutex_);
    if (handed_over_.empty()) return;
    eager = std::move(handed_over_.front());
    handed_over_.pop_front();
    eager.buffer->record_use(main);
  }

  void capture_until(const std::atomic<bool>& done, std::uint64_t seed) {
    Random random(seed);
    GraphPool graph_pool = pool_->make_graph_pool();
    std::deque<std::shared_ptr<Buffer>> kept;
    while (!done) {
      const Stream main(Device::cuda());
      std::optional<Stream> side(Device::cuda());
      const bool spoil = random.chance(0.1);
      {
        CaptureRoute route(graph_pool);
        BURIN_CUDA("test", cudaStreamBeginCapture, native(main), cudaStreamCaptureModeThreadLocal);
        route.bind(cuda::capture_id(main));
        side->wait(main.view());
        try {
          fill(kept, random, main, *side);
        } catch (const OutOfMemory&) {  // at the limit
        }
        if (random.chance(0.3)) graph_pool = pool_->make_graph_pool();
        main.wait(side->view());
        if (fake() && random.chance(0.2)) side.reset();
        if (spoil) cuda::ignore(cuda::api().cudaStreamSynchronize(native(main)));
        if (random.chance(0.1)) kept.clear();
        cudaGraph_t graph = nullptr;
        const cudaError_t code = cuda::api().cudaStreamEndCapture(native(main), &graph);
        cuda::ignore(code);
        broken_captures_ += code != cudaSuccess && !spoil;
        if (graph) cuda::ignore(cuda::api().cudaGraphDestroy(graph));
      }
      while (kept.size() > 4) kept.pop_front();
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
  }

  static constexpr int kStreams = 4;
  std::shared_ptr<CachingPool> pool_;
  std::shared_ptr<CachingPool> pinned_;
  std::mutex mutex_;  // guards the two that follow
  std::array<std::shared_ptr<Stream>, kStreams> streams_;
  std::deque<Held> handed_over_;  // to be dropped by whichever thread takes it
  std::atomic<int> wrong_{0};
  std::atomic<int> broken_captures_{0};
};

INSTANTIATE_TEST_SUITE_P(Seeds, PoolChurn, ::testing::Range(std::uint64_t{1}, std::uint64_t{5}));

TEST_P(PoolChurn, VirtualMemory) { run(nullptr); }
TEST_P(PoolChurn, PlainSegments) { run(make_cuda_resource(0)); }

}  // namespace
}  // namespace burin::test
