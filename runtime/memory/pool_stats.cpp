// What a CachingPool tells of itself.

#include <burin/runtime/memory/pool.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace burin::detail {

void Pool::count_reserved() noexcept {
  std::size_t reserved = 0;
  for (const Heap& heap : heaps_) reserved += heap.reserved_bytes();
  reserved_.store(reserved, std::memory_order_relaxed);
  counted_.reserved_bytes.current = reserved;
  counted_.reserved_bytes.peak = std::max(counted_.reserved_bytes.peak, reserved);
}

PoolStats Pool::stats() {
  const std::lock_guard lock(mutex_);
  return current_stats();
}

PoolStats Pool::current_stats() {
  PoolStats stats = counted_;
  QueueCounters::Widths live{};
  QueueCounters::Widths total{};
  // All at once: a block freed between two queues' turns would count twice or not at all.
  for (Heap& heap : heaps_)
    for (Queue& queue : heap.queues()) queue.lock.lock();
  const std::uint64_t usage = usage_.now.load(std::memory_order_relaxed);
  for (Heap& heap : heaps_) {
    for (Queue& queue : heap.queues()) {
      stats.hits += queue.counters.hits;
      stats.requested_bytes += queue.counters.requested_bytes;
      stats.allocated_bytes.total += queue.counters.total_bytes;
      for (std::size_t i = 0; i < live.size(); ++i) {
        live[i] += queue.counters.live[i];
        total[i] += queue.counters.total[i];
      }
      queue.lock.unlock();
    }
  }
  stats.allocated_bytes.current = (usage >> kCountBits) * kUnitBytes;
  stats.allocated_bytes.peak = usage_.peak_units.load(std::memory_order_relaxed) * kUnitBytes;
  stats.blocks.current = usage & ((std::uint64_t{1} << kCountBits) - 1);
  stats.blocks.peak = usage_.peak_blocks.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < live.size(); ++i) {
    stats.blocks.total += total[i];
    if (total[i] != 0) stats.size_classes.push_back({kUnitBytes << i, live[i], total[i]});
  }
  stats.invalid_frees = invalid_frees_.load(std::memory_order_relaxed);
  stats.largest_free_block = largest_free_block();
  return stats;
}

void Pool::reset_peaks() {
  const std::lock_guard lock(mutex_);
  const std::uint64_t usage = usage_.now.load(std::memory_order_relaxed);
  usage_.peak_units.store(usage >> kCountBits, std::memory_order_relaxed);
  usage_.peak_blocks.store(usage & ((std::uint64_t{1} << kCountBits) - 1), std::memory_order_relaxed);
  counted_.reserved_bytes.peak = counted_.reserved_bytes.current;
}

PoolSnapshot Pool::snapshot() {
  PoolSnapshot snapshot{.device = source_->device(), .kind = source_->kind(), .segments = {}, .stats = {}};
  const std::lock_guard lock(mutex_);
  snapshot.stats = current_stats();
  std::size_t blocks = 0;
  for (Heap& heap : heaps_)
    for (const Segment& segment : heap.segments())
      for (const Block* block = segment.first; block; block = block->after) ++blocks;
  std::vector<PoolSnapshot::Block> copies(blocks);
  std::vector<const std::string*> scopes(blocks);
  for (Heap& heap : heaps_)
    for (Queue& queue : heap.queues()) queue.lock.lock();
  std::size_t next = 0;
  for (Heap& heap : heaps_) {
    for (const Segment& segment : heap.segments()) {
      for (const Block* block = segment.first; block; block = block->after, ++next) {
        const BlockState state = block->state.load(std::memory_order_relaxed);
        PoolSnapshot::Block& copy = copies[next];
        copy.address = reinterpret_cast<std::uintptr_t>(block->address);
        copy.bytes = state == BlockState::hole ? 0 : block->bytes;
        if (state == BlockState::live) copy.requested_bytes = block->requested_bytes;
        copy.state = state == BlockState::live     ? PoolSnapshot::State::live
                     : state == BlockState::fenced ? PoolSnapshot::State::pending
                                                   : PoolSnapshot::State::free;
        if (block->queue) copy.stream = block->queue->stream_id.load(std::memory_order_relaxed);
        scopes[next] = block->scope;
      }
    }
  }
  for (Heap& heap : heaps_)
    for (Queue& queue : heap.queues()) queue.lock.unlock();
  next = 0;
  for (Heap& heap : heaps_) {
    for (const Segment& segment : heap.segments()) {
      PoolSnapshot::Segment& out = snapshot.segments.emplace_back();
      out.address = reinterpret_cast<std::uintptr_t>(segment.address);
      out.bytes = segment.mapped_bytes;
      out.graph_pool = heap.id();
      for (const Block* block = segment.first; block; block = block->after, ++next) {
        if (copies[next].bytes == 0) continue;
        if (scopes[next]) copies[next].scope = *scopes[next];
        out.blocks.push_back(std::move(copies[next]));
      }
    }
  }
  return snapshot;
}

std::vector<PoolEvent> Pool::timeline() {
  const std::lock_guard lock(timeline_mutex_);
  return {timeline_.begin(), timeline_.end()};
}

void Pool::note(PoolEvent::Kind kind, const void* address, std::size_t bytes, std::uint64_t stream,
                const std::string* scope) noexcept {
  if (timeline_events_ == 0) return;
  try {
    PoolEvent event;
    event.kind = kind;
    event.address = reinterpret_cast<std::uintptr_t>(address);
    event.bytes = bytes;
    event.stream = stream;
    if (scope) event.scope = *scope;
    event.reserved_bytes = reserved_.load(std::memory_order_relaxed);
    event.allocated_bytes = (usage_.now.load(std::memory_order_relaxed) >> kCountBits) * kUnitBytes;
    const std::lock_guard lock(timeline_mutex_);
    event.time_ns = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start_)
            .count());
    timeline_.push_back(std::move(event));
    if (timeline_.size() > timeline_events_) timeline_.pop_front();
  } catch (...) {  // no memory to note it
  }
}

}  // namespace burin::detail
