// What goes back to the driver, and what is said when it has no more.

#include <burin/runtime/check.h>
#include <burin/runtime/config.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/memory/pool.h>

#include <algorithm>
#include <string>
#include <utility>

namespace burin::detail {

Pool::~Pool() {
  // Streams no longer tell this pool of their end: those that live are held, those that are going are waited
  // for.
  std::vector<std::shared_ptr<StreamState>> held;
  std::vector<Deferred> settled;
  [[maybe_unused]] const BesideCapture beside;
  settle_deferred(settled);
  for (const Deferred& later : deferred_) later.queue->heap.abandon();
  for (Heap& heap : heaps_) {
    try {
      for (Queue& queue : heap.queues()) {
        if (queue.stream_state == nullptr) continue;
        held.push_back(queue.owner.lock());
        if (held.back()) continue;
        queue.ended = true;
        synchronize(queue.device);
      }
      if (!wait_for_all(heap) && !has_stopped(heap)) heap.abandon();
    } catch (...) {
      if (!has_stopped(heap)) heap.abandon();
    }
  }
}

/// For when waiting for streams has failed: whether their devices can be waited for as a whole.
bool Pool::has_stopped(Heap& heap) noexcept try {
  for (Queue& queue : heap.queues()) {
    if (&queue != &heap.common()) synchronize(queue.device);
    for (const FencedBlock& fenced : queue.fenced)
      for (const Fence& fence : fenced.fences) synchronize(fence.event.device());
  }
  return true;
} catch (...) {
  return false;
}

/// Waits on the host for what the queue's stream was given so far.
void Pool::wait_for(Queue& queue) {
  Event event = take_event(queue.stream.device());
  event.record(queue.stream);
  event.synchronize();
  keep_event(std::move(event));
}

/// Waits on the host until no stream uses what is free in the heap, and makes it anybody's. What is free on a
/// stream that is being captured, or ended without an event to wait for, stays there: then false.
bool Pool::wait_for_all(Heap& heap) {
  bool waited = true;
  for (Queue& queue : heap.queues()) {
    if (&queue == &heap.common()) continue;
    heap.flush(queue);
    if (Heap::has_free(queue) || !queue.fenced.empty() || queue.ran_graphs) {
      if (queue.ended) {
        if (!queue.last && !queue.idle_at_end) {
          waited = false;
          continue;
        }
        if (queue.last) queue.last->synchronize();
      } else {
        if (capture_of(queue.stream) != 0) {
          waited = false;
          continue;
        }
        wait_for(queue);
      }
      queue.ran_graphs = false;
    }
    heap.move_free(queue, heap.common());
    while (!queue.fenced.empty()) {
      FencedBlock& fenced = queue.fenced.front();
      for (Fence& fence : fenced.fences)
        if (fence.capture == 0) fence.event.synchronize();
      heap.put(fenced.block, heap.common());
      queue.fenced.pop_front();
    }
  }
  return waited;
}

/// Until at most `to_bytes` are held, as far as that goes. GraphPools with handles keep theirs: graphs hold
/// the addresses of blocks that are free.
void Pool::give_back(std::size_t to_bytes) {
  const std::size_t before = reserved_.load(std::memory_order_relaxed);
  std::size_t reserved = before;
  for (Heap& heap : heaps_) {
    if (reserved <= to_bytes) break;
    if (heap.id() != 0 && !heap.closed) continue;
    if (!wait_for_all(heap) && heap.id() != 0) continue;  // a graph may use what is anybody's
    reserved -= heap.release_free(reserved - to_bytes);
    count_reserved();
  }
  if (reserved < before) {
    ++counted_.trims;
    note(PoolEvent::Kind::trim, nullptr, before - reserved, 0, nullptr);
  }
}

std::size_t Pool::trim(std::size_t to_bytes) {
  [[maybe_unused]] const BesideCapture beside;
  std::vector<Deferred> settled;  // its streams may end with it, outside the lock
  const std::lock_guard lock(mutex_);
  if (captures_.load(std::memory_order_relaxed) != 0) return 0;
  settle_deferred(settled);
  const std::size_t before = reserved_.load(std::memory_order_relaxed);
  release_closed();
  give_back(to_bytes);
  return before - reserved_.load(std::memory_order_relaxed);
}

std::size_t Pool::largest_free_block() {
  std::size_t largest = 0;
  for (Queue& queue : heaps_.front().queues()) {
    heaps_.front().flush(queue);
    for (const FreeLists& lists : queue.free) largest = std::max(largest, lists.largest_bytes());
  }
  return largest;
}

OutOfMemory::Figures Pool::figures(std::size_t bytes) {
  OutOfMemory::Figures figures{.requested = bytes};
  figures.allocated = (usage_.now.load(std::memory_order_relaxed) >> kCountBits) * kUnitBytes;
  figures.reserved = reserved_.load(std::memory_order_relaxed);
  figures.largest_block = largest_free_block();
  if constexpr (kHasCuda)
    if (source_->device().is_cuda())
      cuda::memory_info(source_->device().index, &figures.free, &figures.total);
  return figures;
}

void Pool::throw_out_of_memory(std::size_t bytes) {
  ++counted_.out_of_memory;
  const OutOfMemory::Figures all = figures(bytes);
  note(PoolEvent::Kind::out_of_memory, nullptr, bytes, 0, nullptr);
  std::string message = fmt::format(
      "{} bytes could not be allocated on {}: the pool has {} in use and {} reserved, its largest free block "
      "has {}",
      bytes, name(source_->device()), all.allocated, all.reserved, all.largest_block);
  if (limit_bytes() != CachingPoolOptions{}.limit_bytes)
    message += fmt::format(", its limit is {}", limit_bytes());
  if (all.total) message += fmt::format("; {} of the device's {} are free", all.free, all.total);
  throw OutOfMemory(message, all);
}

}  // namespace burin::detail
