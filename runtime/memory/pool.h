#pragma once
// Private: the body of a CachingPool, shared by it, its GraphPools and the streams that tell it of their end.

#include <burin/runtime/error.h>
#include <burin/runtime/memory/caching_pool.h>
#include <burin/runtime/memory/heap.h>
#include <burin/runtime/stream_state.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace burin::detail {

class Pool;

/// What the handles of one GraphPool share.
struct Arena {
  Arena(std::shared_ptr<Pool> pool_in, Heap& heap_in) : pool(std::move(pool_in)), heap(heap_in) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  const std::shared_ptr<Pool> pool;
  Heap& heap;
  std::mutex replay_mutex;                   // held while a graph is launched
  std::shared_ptr<StreamState> last_replay;  // the stream of the last one
};

/// Locks are taken in this order: the pool's mutex; a queue's, a stream's or the upstream resource's; the
/// timeline's. Of a caller's code only an upstream resource runs under one of them, the mutex.
class Pool final : public StreamListener, public std::enable_shared_from_this<Pool> {
 public:
  Pool(std::unique_ptr<SegmentSource> source, const CachingPoolOptions& options);
  ~Pool() override;

  SegmentSource& source() noexcept { return *source_; }
  void* allocate(std::size_t bytes, StreamView stream);
  void deallocate(void* data, StreamView stream) noexcept;
  /// False, and nothing has changed, if the events could not be made.
  bool deallocate_after(void* data, StreamView stream, std::span<const StreamView> users) noexcept;

  PoolStats stats();
  PoolSnapshot snapshot();
  std::vector<PoolEvent> timeline();
  void reset_peaks();
  std::size_t trim(std::size_t to_bytes);
  std::size_t reserved_bytes() const noexcept { return reserved_.load(std::memory_order_relaxed); }
  std::size_t limit_bytes() const noexcept { return limit_bytes_.load(std::memory_order_relaxed); }
  void set_limit_bytes(std::size_t bytes) noexcept { limit_bytes_.store(bytes, std::memory_order_relaxed); }

  std::shared_ptr<Arena> make_arena();
  /// Nobody holds the heap any more. Its replays, which came one after the other, end on `last_replay`.
  void close(Heap& heap, const std::shared_ptr<StreamState>& last_replay) noexcept;
  std::size_t reserved_bytes(const Heap& heap);
  std::size_t allocated_bytes(Heap& heap);

  // In the order of CaptureRoute's life.
  void begin_capture(Heap& heap);
  void bind_capture(Heap& heap, std::uint64_t capture);
  void end_capture(Heap& heap) noexcept;
  bool has_allocated(const Heap& heap, const void* data) const noexcept;
  Footprint footprint(Heap& heap);
  /// Throws CaptureError if a replay that writes there would overwrite a tensor of another capture.
  void require_unused(Heap& heap, Footprint& footprint);

  void stream_ending(StreamView stream) noexcept override;

 private:
  /// Freed while a user was being captured: its event can be recorded only afterwards.
  struct Deferred {
    Block* block;
    Queue* queue;
    std::vector<std::shared_ptr<StreamState>> users;
  };

  // The hit, without the mutex.
  Queue* recent_queue(std::uint64_t stream_id) noexcept;
  Block* pop_cached(Queue& queue, unsigned size_class, std::size_t bytes) noexcept;
  void push_cached(Queue& queue, Block* block) noexcept;
  void* hand_out(Block* block) noexcept;
  void count_free(const Block* block) noexcept;

  // Everything else, under it.
  void* allocate_slowly(std::size_t bytes, unsigned size_class, StreamView stream);
  Heap& heap_for(StreamView stream);
  Queue& queue_of(Heap& heap, StreamView stream);
  const std::string* scope_of(Queue& queue);
  Block* find_memory(Queue& queue, unsigned size_class, std::size_t bytes);
  bool grow(Queue& queue, unsigned size_class);
  bool take_over(Queue& from, Queue& to);
  bool order_after(Queue& from, Queue& to, std::uint64_t capture);
  bool settle_fenced(Queue& queue, std::uint64_t capture);
  Event take_event(Device device);
  void keep_event(Event event) noexcept;
  void wait_for(Queue& queue);
  bool wait_for_all(Heap& heap);
  static bool has_stopped(Heap& heap) noexcept;
  void give_back(std::size_t to_bytes);
  void release_closed() noexcept;
  void settle_deferred(std::vector<Deferred>& settled) noexcept;
  [[noreturn]] void throw_out_of_memory(std::size_t bytes);
  OutOfMemory::Figures figures(std::size_t bytes);
  void note(PoolEvent::Kind kind, const void* address, std::size_t bytes, std::uint64_t stream,
            const std::string* scope) noexcept;
  PoolStats current_stats();
  void count_reserved() noexcept;
  std::size_t largest_free_block();

  const std::unique_ptr<SegmentSource> source_;
  BlockIndex index_;
  std::atomic<std::size_t> limit_bytes_;
  std::atomic<int> captures_{0};                  // under way, into GraphPools of this pool
  std::array<std::atomic<Queue*>, 64> recent_{};  // queues of eager work, by stream id
  std::atomic<std::uint64_t> invalid_frees_{0};
  std::atomic<std::size_t> reserved_{0};  // written under the mutex

  // Bytes in use, in units, above their number of blocks: one addition keeps both, and both peaks exact.
  // Every thread writes here, so what only is read keeps away from this cache line.
  static constexpr unsigned kCountBits = 30;
  struct Usage {
    alignas(128) std::atomic<std::uint64_t> now{0};
    alignas(128) std::atomic<std::uint64_t> peak_units{0};
    std::atomic<std::uint64_t> peak_blocks{0};
  };
  Usage usage_;

  std::mutex mutex_;
  std::list<Heap> heaps_;                            // the first serves eager work
  std::unordered_map<std::uint64_t, Heap*> routes_;  // by capture
  std::uint64_t next_arena_ = 1;
  std::vector<Event> spare_events_;
  std::vector<Deferred> deferred_;
  std::set<std::string, std::less<>> scopes_;
  PoolStats counted_;  // what only the search counts

  const std::size_t timeline_events_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex timeline_mutex_;  // after all other locks
  std::deque<PoolEvent> timeline_;
};

}  // namespace burin::detail
