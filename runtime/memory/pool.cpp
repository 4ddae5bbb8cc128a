// What is handed out and taken back: the hit, and the search when there is none.

#include <burin/runtime/check.h>
#include <burin/runtime/config.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/memory/pool.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace burin::detail {
namespace {

static_assert(kUnitBytes % MemoryResource::kAlignment == 0);

unsigned width_class(const Block& block) {
  return static_cast<unsigned>(std::bit_width(block.bytes / kUnitBytes - 1));
}

void raise(std::atomic<std::uint64_t>& peak, std::uint64_t value) noexcept {
  std::uint64_t seen = peak.load(std::memory_order_relaxed);
  while (value > seen && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

Pool::Pool(std::unique_ptr<SegmentSource> source, const CachingPoolOptions& options)
    : source_(std::move(source)),
      limit_bytes_(options.limit_bytes),
      timeline_events_(options.timeline_events) {
  heaps_.emplace_back(*source_, index_, 0);
}

// ---- The hit ----

Queue* Pool::recent_queue(std::uint64_t stream_id) noexcept {
  Queue* queue = recent_[stream_id % recent_.size()].load(std::memory_order_acquire);
  return queue && queue->stream_id.load(std::memory_order_acquire) == stream_id ? queue : nullptr;
}

Block* Pool::pop_cached(Queue& queue, unsigned size_class, std::size_t bytes) noexcept {
  const std::lock_guard lock(queue.lock);
  Block* block = queue.cached[size_class];
  const std::uint64_t scope_hash = queue.stream_state->scope_hash();
  const Queue::Scope& scope = queue.scopes[scope_hash % queue.scopes.size()];
  if (!block || scope.hash != scope_hash || !scope.name) return nullptr;
  queue.cached[size_class] = block->next;
  if (!block->next) queue.cached_classes.clear(size_class);
  block->state.store(BlockState::live, std::memory_order_relaxed);
  block->requested_bytes = bytes;
  block->scope = scope.name;
  QueueCounters& counters = queue.counters;
  ++counters.hits;
  ++counters.live[width_class(*block)];
  ++counters.total[width_class(*block)];
  counters.requested_bytes += bytes;
  counters.total_bytes += block->bytes;
  return block;
}

void Pool::push_cached(Queue& queue, Block* block) noexcept {
  const unsigned size_class = class_of_block(block->bytes);
  block->queue = &queue;
  block->next = queue.cached[size_class];
  queue.cached[size_class] = block;
  queue.cached_classes.set(size_class);
  block->state.store(BlockState::cached, std::memory_order_relaxed);
}

void* Pool::hand_out(Block* block) noexcept {
  const std::uint64_t added = (block->bytes / kUnitBytes << kCountBits) + 1;
  const std::uint64_t usage = usage_.now.fetch_add(added, std::memory_order_relaxed) + added;
  raise(usage_.peak_units, usage >> kCountBits);
  raise(usage_.peak_blocks, usage & ((std::uint64_t{1} << kCountBits) - 1));
  if (timeline_events_) [[unlikely]]
    note(PoolEvent::Kind::allocate, block->address, block->bytes, block->queue->stream_id, block->scope);
  return block->address;
}

void Pool::count_free(const Block* block) noexcept {
  usage_.now.fetch_sub((block->bytes / kUnitBytes << kCountBits) + 1, std::memory_order_relaxed);
}

void* Pool::allocate(std::size_t bytes, StreamView stream) {
  if (bytes == 0) return nullptr;
  if (bytes > kLargestRequest) {
    const std::lock_guard lock(mutex_);
    throw_out_of_memory(bytes);
  }
  const unsigned size_class = class_of_request(bytes);
  if (captures_.load(std::memory_order_acquire) == 0) [[likely]]
    if (Queue* queue = recent_queue(stream.id()))
      if (Block* block = pop_cached(*queue, size_class, bytes)) return hand_out(block);
  return allocate_slowly(bytes, size_class, stream);
}

void Pool::deallocate(void* data, StreamView stream) noexcept {
  Block* block = data ? index_.find(data) : nullptr;
  if (!block) {
    if (data) invalid_frees_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  Queue* queue = block->queue;
  Heap& heap = queue->heap;
  if (queue->stream_id.load(std::memory_order_relaxed) != stream.id()) [[unlikely]] {
    try {
      const std::lock_guard lock(mutex_);
      queue = &queue_of(heap, stream);
    } catch (...) {  // no memory for a queue: the block stays with its own, once nothing uses it
      try {
        stream.synchronize();
      } catch (...) {
        return;
      }
    }
  }
  {
    const std::lock_guard lock(queue->lock);
    if (block->state.load(std::memory_order_relaxed) != BlockState::live) {
      invalid_frees_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    count_free(block);
    if (timeline_events_) [[unlikely]]
      note(PoolEvent::Kind::deallocate, data, block->bytes, stream.id(), block->scope);
    --queue->counters.live[width_class(*block)];
    queue->counters.requested_bytes -= block->requested_bytes;
    push_cached(*queue, block);
  }
  if (heap.id() != 0 && heap.live_blocks.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    const std::lock_guard lock(mutex_);
    release_closed();
  }
}

bool Pool::deallocate_after(void* data, StreamView stream, std::span<const StreamView> users) noexcept try {
  const std::lock_guard lock(mutex_);
  Block* block = data ? index_.find(data) : nullptr;
  if (!block || block->state.load(std::memory_order_relaxed) != BlockState::live) return false;
  Heap& heap = block->queue->heap;
  Queue& queue = queue_of(heap, stream);
  FencedBlock fenced{block, {}};
  bool deferred = false;
  for (const StreamView user : users) {
    if (user == stream) continue;
    const std::uint64_t capture = capture_of(user);
    const auto route = routes_.find(capture);
    if (capture != 0 && (route == routes_.end() || route->second != &heap)) {
      deferred = true;
      break;
    }
    Event event = take_event(user.device());
    event.record(user);
    fenced.fences.push_back({std::move(event), capture});
  }
  if (deferred) {
    Deferred later{block, &queue, {}};
    later.users.push_back(stream.share());
    for (const StreamView user : users) later.users.push_back(user.share());
    deferred_.push_back(std::move(later));
  } else {
    queue.fenced.push_back(std::move(fenced));
  }
  count_free(block);
  note(PoolEvent::Kind::deallocate, data, block->bytes, stream.id(), block->scope);
  {
    const std::lock_guard queue_lock(queue.lock);
    --queue.counters.live[width_class(*block)];
    queue.counters.requested_bytes -= block->requested_bytes;
    block->queue = &queue;
    block->state.store(BlockState::fenced, std::memory_order_relaxed);
  }
  if (heap.id() != 0 && heap.live_blocks.fetch_sub(1, std::memory_order_acq_rel) == 1) release_closed();
  return true;
} catch (...) {
  return false;
}

// ---- The search, under the mutex ----

void* Pool::allocate_slowly(std::size_t bytes, unsigned size_class, StreamView stream) try {
  [[maybe_unused]] const BesideCapture beside;
  std::vector<Deferred> settled;  // its streams may end with it, outside the lock
  const std::lock_guard lock(mutex_);
  settle_deferred(settled);
  Queue& queue = queue_of(heap_for(stream), stream);
  const std::string* scope = scope_of(queue);
  std::vector<Footprint::Range>& handed_out = queue.heap.handed_out;  // room first: below nothing may fail
  if (queue.heap.recording && handed_out.size() == handed_out.capacity())
    handed_out.reserve(2 * handed_out.size() + 64);
  Block* block = pop_cached(queue, size_class, bytes);
  if (!block) {
    block = find_memory(queue, size_class, bytes);
    const std::lock_guard queue_lock(queue.lock);
    block->requested_bytes = bytes;
    block->scope = scope;
    ++queue.counters.live[width_class(*block)];
    ++queue.counters.total[width_class(*block)];
    queue.counters.requested_bytes += bytes;
    queue.counters.total_bytes += block->bytes;
  }
  if (Heap& heap = queue.heap; heap.id() != 0) {
    heap.live_blocks.fetch_add(1, std::memory_order_relaxed);
    block->recording = heap.recordings.load(std::memory_order_relaxed);
    if (heap.recording) heap.handed_out.push_back({block->address, block->bytes});
  }
  return hand_out(block);
} catch (const std::bad_alloc&) {
  throw OutOfMemory(
      fmt::format("{} bytes could not be allocated on {}: the host has no memory for the record", bytes,
                  name(source_->device())),
      {.requested = bytes});
}

Heap& Pool::heap_for(StreamView stream) {
  if (captures_.load(std::memory_order_relaxed) != 0)
    if (const auto route = routes_.find(capture_of(stream)); route != routes_.end()) return *route->second;
  return heaps_.front();
}

Queue& Pool::queue_of(Heap& heap, StreamView stream) {
  if (Queue* queue = heap.find_queue(stream.id())) {
    if (heap.id() == 0) recent_[stream.id() % recent_.size()].store(queue, std::memory_order_release);
    return *queue;
  }
  stream.share()->add_listener(weak_from_this());
  Queue& queue = heap.queue_of(stream);
  if (heap.id() == 0) recent_[stream.id() % recent_.size()].store(&queue, std::memory_order_release);
  return queue;
}

/// The name of the stream's scope, kept for as long as the pool.
const std::string* Pool::scope_of(Queue& queue) {
  const auto place = [&](std::uint64_t hash) { return &queue.scopes[hash % queue.scopes.size()]; };
  const std::uint64_t hash = queue.stream_state->scope_hash();
  if (const Queue::Scope* known = place(hash); known->name && known->hash == hash) return known->name;
  StreamState::Scope scope = queue.stream_state->scope();  // perhaps another by now
  const std::string* name = &*scopes_.insert(std::move(scope.path)).first;
  const std::lock_guard lock(queue.lock);
  *place(scope.hash) = {scope.hash, name};
  return name;
}

Block* Pool::find_memory(Queue& queue, unsigned size_class, std::size_t bytes) {
  Heap& heap = queue.heap;
  const auto cut = [&](Queue& from) {
    Block* block = heap.take(from, queue, size_class);
    if (block) ++counted_.splits;
    return block;
  };
  heap.flush(queue);
  if (Block* block = cut(queue)) return block;
  if (Block* block = cut(heap.common())) return block;

  // What nobody else can use: memory of streams that are gone, and memory whose further users have finished.
  for (Queue& other : heap.queues())
    if (other.ended && take_over(other, queue))
      if (Block* block = cut(queue)) return block;
  if (settle_fenced(queue, capture_of(queue.stream)))
    if (Block* block = cut(queue)) return block;

  if (grow(queue, size_class)) return cut(queue);

  for (Queue& other : heap.queues())
    if (&other != &queue && take_over(other, queue))
      if (Block* block = cut(queue)) return block;
  if (take_over(queue, queue))
    if (Block* block = cut(queue)) return block;

  if (captures_.load(std::memory_order_relaxed) == 0) {
    give_back(0);
    if (Block* block = cut(heap.common())) return block;
    if (grow(queue, size_class)) return cut(queue);
  }
  throw_out_of_memory(bytes);
}

/// Asks the source for what the queue lacks. Whole mappings that lie idle in other free blocks of the queue
/// go back first, once its stream has finished with them, so that fragments are not held beside what is used.
/// False if the growth is beyond the limit, or the source has no more.
bool Pool::grow(Queue& queue, unsigned size_class) {
  Heap& heap = queue.heap;
  const std::size_t growth = heap.growth_for(queue, size_class);
  if (captures_.load(std::memory_order_relaxed) == 0 && heap.has_idle(queue, size_class) &&
      capture_of(queue.stream) == 0) {
    wait_for(queue);
    heap.release_idle(queue, size_class, growth);
    count_reserved();
  }
  const std::size_t reserved = reserved_.load(std::memory_order_relaxed);
  if (const std::size_t limit = limit_bytes(); reserved > limit || growth > limit - reserved) return false;
  const std::size_t before = heap.reserved_bytes();
  try {
    heap.grow(queue, size_class);
  } catch (const OutOfMemory&) {
    return false;
  }
  ++counted_.grows;
  counted_.reserved_bytes.total += heap.reserved_bytes() - before;
  count_reserved();
  note(PoolEvent::Kind::grow, nullptr, growth, queue.stream_id, nullptr);
  return true;
}

/// Everything that is free on `from`, or fenced, becomes free on `to`, whose stream waits on the device. True
/// if there was anything. Of `to` itself it is what is fenced.
bool Pool::take_over(Queue& from, Queue& to) {
  const std::uint64_t capture = capture_of(to.stream);
  from.heap.flush(from);
  bool took = Heap::has_free(from);
  if (&from == &to) {
    took = false;
  } else {
    if (!took && from.fenced.empty()) return false;
    if (!order_after(from, to, capture)) return false;
    from.heap.move_free(from, to);
  }
  while (!from.fenced.empty()) {
    FencedBlock& fenced = from.fenced.front();
    for (const Fence& fence : fenced.fences) {
      if (fence.capture != capture) return took;
      to.stream.wait(fence.event);
    }
    if (capture == 0)
      for (Fence& fence : fenced.fences) keep_event(std::move(fence.event));
    from.heap.put(fenced.block, to);
    from.fenced.pop_front();
    took = true;
  }
  if (took) ++counted_.stream_waits;
  return took;
}

/// The stream of `to` waits for what the stream of `from` was given so far. False if it must not: one of them
/// is being captured, and the other is not.
bool Pool::order_after(Queue& from, Queue& to, std::uint64_t capture) {
  if (from.stream_id.load(std::memory_order_relaxed) == 0) return true;
  if (capture == cuda::kInvalidCapture) return false;
  if (from.ended) {
    if (capture != 0 || !(from.last || from.idle_at_end)) return false;
    if (from.last) to.stream.wait(*from.last);
    return true;
  }
  if (capture_of(from.stream) != capture) return false;
  Event event = take_event(from.stream.device());
  event.record(from.stream);
  to.stream.wait(event);
  if (capture == 0) keep_event(std::move(event));
  return true;
}

/// Frees the fenced blocks whose events have finished, or, within a capture, all that were fenced in it,
/// behind a wait. True if there were any.
bool Pool::settle_fenced(Queue& queue, std::uint64_t capture) {
  bool settled = false;
  while (!queue.fenced.empty()) {
    FencedBlock& fenced = queue.fenced.front();
    for (const Fence& fence : fenced.fences) {
      if (fence.capture != capture) return settled;
      if (capture != 0)
        queue.stream.wait(fence.event);
      else if (captures_.load(std::memory_order_relaxed) != 0 || !fence.event.is_done())
        return settled;
    }
    if (capture == 0)
      for (Fence& fence : fenced.fences) keep_event(std::move(fence.event));
    queue.heap.put(fenced.block, queue);
    queue.fenced.pop_front();
    settled = true;
  }
  return settled;
}

Event Pool::take_event(Device device) {
  for (auto event = spare_events_.rbegin(); event != spare_events_.rend(); ++event) {
    if (event->device() != device) continue;
    std::swap(*event, spare_events_.back());
    Event taken = std::move(spare_events_.back());
    spare_events_.pop_back();
    return taken;
  }
  return Event(device, {.timing = false});
}

/// Not for an event that was recorded in a capture: the capture, perhaps of another thread, still refers to
/// it.
void Pool::keep_event(Event event) noexcept try {
  spare_events_.push_back(std::move(event));
} catch (...) {  // no room: the event goes
}

}  // namespace burin::detail
