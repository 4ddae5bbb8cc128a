#pragma once

#include <burin/runtime/device.h>
#include <burin/runtime/export.h>
#include <burin/runtime/memory/graph_pool.h>
#include <burin/runtime/memory/memory_resource.h>
#include <burin/runtime/memory/pool_stats.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

namespace burin {

namespace detail {
class Pool;
}

struct CachingPoolOptions {
  /// Most bytes that may be held from the driver. Requests beyond it are OutOfMemory.
  std::size_t limit_bytes = std::numeric_limits<std::size_t>::max();
  /// Events that timeline() keeps, the latest; 0 keeps none and costs nothing.
  std::size_t timeline_events = 0;
};

/// Keeps what was freed, and hands it out again without asking the driver.
///
/// The policy:
/// - A request is rounded up to its size class: multiples of 256 bytes up to 16 KiB, then 32 classes for each
///   doubling. From 8 KiB up rounding adds at most 3.1 %.
/// - Each stream has a list of free blocks for every class. A request takes the last freed block of its class
///   and stream: no search, no lock shared between streams. What a stream frees it may reuse at once.
/// - Otherwise the stream's free blocks are merged with their neighbours, and the smallest that fits is cut
///   (best fit, lowest address first). Blocks up to 1 MiB and larger ones come from different segments.
/// - Otherwise the pool grows: on a device that has virtual memory (cuMemMap), by mapping just what is
///   missing after a free block, in steps of the device's granule (2 MiB); elsewhere by a segment of its own.
///   Whole mappings that lie idle in the stream's other free blocks go back first, once its work is done.
/// - Where the driver refuses, or the limit is reached, the stream takes over what other streams freed: it
///   waits on the device for an event recorded on them. Then the host waits for all work on free memory,
///   what is wholly free goes back to the driver, and the request is tried once more. Then it is OutOfMemory,
///   with all figures.
/// - The event is recorded when another stream takes memory over, not at every free: it covers the free and
///   what was queued after it, and a free stays a push onto a list. Memory that further streams use
///   (deallocate_after, Tensor::record_use) carries events recorded at its free, and serves again after them.
/// - Streams are known by id. One that ends leaves its free blocks to all, behind its last event; they serve
///   before the pool grows.
/// - While a capture into a GraphPool is under way, requests on its streams are served from that GraphPool,
///   nothing goes back to the driver, and no event is queried.
///
/// Thread-safe. Destroyed with its last owner, and every tensor is one: it waits for the work that uses its
/// memory, and gives everything back.
class BURIN_API CachingPool final : public MemoryResource {
 public:
  /// A pool of a device's memory, or of host memory for the CPU. Throws DeviceError.
  explicit CachingPool(Device device, CachingPoolOptions options = {});
  /// A pool that draws whole segments from another resource, which must not call this pool: it is called
  /// under the pool's lock. Throws Error if `upstream` is null.
  explicit CachingPool(std::shared_ptr<MemoryResource> upstream, CachingPoolOptions options = {});
  ~CachingPool() override;

  void* allocate(std::size_t bytes, StreamView stream) override;
  void deallocate(void* data, std::size_t bytes, StreamView stream) noexcept override;
  void deallocate_after(void* data, std::size_t bytes, StreamView stream,
                        std::span<const StreamView> users) noexcept override;
  Device device() const noexcept override;
  MemoryKind kind() const noexcept override;

  /// So that largest_free_block is true, free blocks are merged first: the next request of each class and
  /// stream is then cut anew, not a hit. Likewise snapshot().
  PoolStats stats() const;
  void reset_peaks();
  PoolSnapshot snapshot() const;
  /// Oldest first; empty unless CachingPoolOptions::timeline_events.
  std::vector<PoolEvent> timeline() const;

  /// Gives memory that nobody uses back to the driver until at most `to_bytes` are held, as far as whole
  /// mappings are free; waits for work that is queued on it. Returns the bytes given back: 0 while a capture
  /// is under way. Throws CudaError if the wait fails.
  std::size_t trim(std::size_t to_bytes = 0);
  /// Bytes held from the driver now; cheap, unlike stats().
  std::size_t reserved_bytes() const noexcept;
  std::size_t limit_bytes() const noexcept;
  /// Takes effect for later requests; what is held stays.
  void set_limit_bytes(std::size_t bytes) noexcept;

  /// Memory of its own for captures. See GraphPool.
  GraphPool make_graph_pool() const;
  /// Whether make_graph_pool() of this pool made it; false for no pool.
  bool made(const GraphPool& pool) const noexcept;

 private:
  std::shared_ptr<detail::Pool> pool_;
};

/// A pool of page-locked host memory, for asynchronous copies. A block that a copy uses (copy_async,
/// Tensor::record_use) is handed out again only after it. Throws DeviceError where CUDA cannot be used.
BURIN_API std::shared_ptr<CachingPool> make_pinned_pool(CachingPoolOptions options = {});

}  // namespace burin
