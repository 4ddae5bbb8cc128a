#pragma once
// Private: segments, blocks and free lists of a CachingPool, or of one GraphPool of it.

#include <burin/runtime/event.h>
#include <burin/runtime/memory/block.h>
#include <burin/runtime/memory/block_index.h>
#include <burin/runtime/memory/capture_route.h>
#include <burin/runtime/memory/segment_source.h>
#include <burin/runtime/stream.h>
#include <burin/runtime/stream_state.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace burin::detail {

class Heap;

/// To be held for tens of nanoseconds at a time.
class SpinLock {
 public:
  void lock() noexcept {
    while (flag_.test_and_set(std::memory_order_acquire))
      while (flag_.test(std::memory_order_relaxed)) __builtin_ia32_pause();
  }
  void unlock() noexcept { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag flag_;
};

/// An event, and the capture it was recorded in (0: none): only streams of that capture may wait for it.
struct Fence {
  Event event;
  std::uint64_t capture = 0;
};

/// A block that is free once events of further streams have finished.
struct FencedBlock {
  Block* block;
  std::vector<Fence> fences;
};

/// Counters of one queue. A block may be freed to another queue than it came from, so only sums over all
/// queues mean something, and those of `live` wrap.
struct QueueCounters {
  using Widths = std::array<std::size_t, 48>;  // by bit width of the block's units less one
  std::uint64_t hits = 0;
  std::size_t requested_bytes = 0;  // of live blocks
  std::size_t total_bytes = 0;      // ever handed out
  Widths live{};
  Widths total{};  // ever handed out
};

/// What one stream has freed. `lock` guards the cached lists and the counters, the pool's mutex the rest.
struct Queue {
  enum Region { small, large };  // blocks of at most 1 MiB, and larger ones

  explicit Queue(Heap& heap_in) : heap(heap_in) {}

  Heap& heap;
  std::atomic<std::uint64_t> stream_id{0};  // 0: no stream, its blocks are anybody's
  StreamView stream;                        // while the stream lives
  const StreamState* stream_state = nullptr;
  std::weak_ptr<StreamState> owner;
  Device device;
  bool ended = false;        // the stream is gone, and `last` was recorded on it
  bool idle_at_end = false;  // it has no `last`, and left nothing that runs outside a capture
  bool ran_graphs = false;   // the heap's graphs, which are gone, and may be under way still
  std::optional<Event> last;

  SpinLock lock;
  std::array<Block*, kClassCount> cached{};
  ClassBitmap cached_classes;
  QueueCounters counters;
  struct Scope {
    std::uint64_t hash = 0;
    const std::string* name = nullptr;  // null: not looked up yet
  };
  std::array<Scope, 64> scopes;  // by hash, the last of each place

  std::array<FreeLists, 2> free;   // by region
  std::deque<FencedBlock> fenced;  // in the order freed
};

/// Addresses of one region, tiled by blocks from `first` on.
struct Segment {
  struct Mapping {
    std::size_t bytes;
    std::uint64_t handle;
  };
  char* address;
  std::size_t bytes;  // of addresses
  std::size_t mapped_bytes = 0;
  Queue::Region region;
  Block* first = nullptr;
  std::map<char*, Mapping> mappings;
};

/// Cuts, merges, grows and gives back. All calls under the pool's mutex, but for those on a queue's cached
/// lists. Knows nothing of the order of streams: who moves a block between queues has seen to the wait.
class Heap {
 public:
  Heap(SegmentSource& source, BlockIndex& index, std::uint64_t id);
  ~Heap();  // gives everything back; no work may use it
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  std::uint64_t id() const noexcept { return id_; }     // of the GraphPool; 0: of eager work
  Queue& common() noexcept { return queues_.front(); }  // of no stream
  std::list<Queue>& queues() noexcept { return queues_; }
  std::list<Segment>& segments() noexcept { return segments_; }
  std::size_t reserved_bytes() const noexcept { return reserved_bytes_; }

  // Of a GraphPool:
  std::atomic<std::size_t> live_blocks{0};
  std::atomic<std::uint64_t> recordings{0};  // captures so far
  bool recording = false;                    // the last of them is under way
  std::vector<Footprint::Range> handed_out;  // in it
  bool closed = false;                       // no handle is left

  /// The queue of the stream, made if there is none. Throws std::bad_alloc.
  Queue& queue_of(StreamView stream);
  Queue* find_queue(std::uint64_t stream_id) noexcept;

  /// Cuts a live block of the class from the free blocks of `from`, for `to`; null if none is large enough.
  /// Throws std::bad_alloc.
  Block* take(Queue& from, Queue& to, unsigned size_class);
  /// The block, live or fenced, becomes free on the queue, merged with its neighbours there.
  void put(Block* block, Queue& queue) noexcept;
  /// All that is cached on the queue becomes free and merged.
  void flush(Queue& queue) noexcept;
  /// All free blocks of `from` become free on `to`; cached ones stay, as they may have been freed after the
  /// event that the caller waited for.
  void move_free(Queue& from, Queue& to) noexcept;
  static bool has_free(const Queue& queue) noexcept;

  /// Bytes that must be mapped so that the queue can serve the class.
  std::size_t growth_for(const Queue& queue, unsigned size_class) const;
  /// Maps them; take() then succeeds. Throws OutOfMemory, CudaError, std::bad_alloc, with nothing changed.
  void grow(Queue& queue, unsigned size_class);
  /// Whether whole mappings lie in free blocks of the queue or of the common one, other than the block that
  /// grow() would extend.
  bool has_idle(const Queue& queue, unsigned size_class) const;
  /// Gives those mappings back, until `bytes` are reached or none is left.
  std::size_t release_idle(Queue& queue, unsigned size_class, std::size_t bytes) noexcept;
  /// Gives back mappings that lie in free blocks of the common queue, until `bytes` are reached or none is
  /// left. No work may use what these two give back. They return the bytes given back.
  std::size_t release_free(std::size_t bytes) noexcept;
  /// The destructor keeps the memory: work that cannot be waited for may use it.
  void abandon() noexcept { abandoned_ = true; }

 private:
  /// Where memory is missing least: a hole, and the free block before it if that counts too.
  struct Place {
    Block* hole = nullptr;  // null: a segment must be added
    std::size_t map_bytes = 0;
  };
  Place find_place(const Queue& queue, unsigned size_class) const;
  Segment& add_segment(Queue::Region region, std::size_t bytes);
  void drop_segment(Segment& segment) noexcept;
  void map(Segment& segment, char* address, std::size_t bytes);
  void unmap(Segment& segment, std::map<char*, Segment::Mapping>::iterator mapping) noexcept;
  bool counts_for(const Block* block, const Queue& queue) const noexcept;
  void add_free(Block* block, Queue& queue) noexcept;
  template <class Predicate>
  std::size_t release_where(std::size_t bytes, const Predicate& may_go) noexcept;
  template <class Predicate>
  std::size_t release_from(Segment& segment, std::size_t bytes, const Predicate& may_go) noexcept;
  static std::map<char*, Segment::Mapping>::iterator last_mapping_in(const Block& block) noexcept;
  bool split_around(Block* block, char* address, std::size_t bytes) noexcept;
  void add_hole(Block* block) noexcept;

  SegmentSource& source_;
  BlockIndex& index_;
  const std::uint64_t id_;
  std::size_t reserved_bytes_ = 0;
  bool abandoned_ = false;
  std::list<Queue> queues_;
  std::list<Segment> segments_;
  std::array<BlockList, 2> holes_;  // by region, in no order
};

}  // namespace burin::detail
