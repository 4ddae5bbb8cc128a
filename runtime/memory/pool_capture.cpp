// GraphPools, captures and the end of streams.

#include <burin/runtime/check.h>
#include <burin/runtime/memory/capture_route.h>
#include <burin/runtime/memory/pool.h>

#include <algorithm>
#include <utility>

namespace burin {
namespace detail {

Arena::~Arena() { pool->close(heap, last_replay); }

std::shared_ptr<Arena> Pool::make_arena() {
  const std::lock_guard lock(mutex_);
  heaps_.emplace_back(*source_, index_, next_arena_);
  try {
    auto arena = std::make_shared<Arena>(shared_from_this(), heaps_.back());
    ++next_arena_;
    return arena;
  } catch (...) {
    heaps_.pop_back();
    throw;
  }
}

void Pool::close(Heap& heap, const std::shared_ptr<StreamState>& last_replay) noexcept {
  [[maybe_unused]] const BesideCapture beside;
  const std::lock_guard lock(mutex_);
  try {
    if (last_replay) queue_of(heap, StreamView(last_replay.get())).ran_graphs = true;
  } catch (...) {  // no memory for the note
    heap.abandon();
  }
  heap.closed = true;
  release_closed();
}

/// GraphPools that nobody needs go, unless a capture forbids it: then at its end.
void Pool::release_closed() noexcept {
  if (captures_.load(std::memory_order_relaxed) != 0) return;
  for (auto heap = heaps_.begin(); heap != heaps_.end();) {
    const auto current = heap++;
    if (!current->closed || current->live_blocks.load(std::memory_order_acquire) != 0) continue;
    const auto is_here = [&](const Deferred& later) { return &later.queue->heap == &*current; };
    if (std::any_of(deferred_.begin(), deferred_.end(), is_here)) continue;
    try {
      if (!wait_for_all(*current)) continue;
    } catch (...) {
      if (!has_stopped(*current)) current->abandon();
    }
    heaps_.erase(current);
    count_reserved();
  }
}

std::size_t Pool::reserved_bytes(const Heap& heap) {
  const std::lock_guard lock(mutex_);
  return heap.reserved_bytes();
}

std::size_t Pool::allocated_bytes(Heap& heap) {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const Segment& segment : heap.segments())
    for (const Block* block = segment.first; block; block = block->after)
      if (block->state.load(std::memory_order_relaxed) == BlockState::live) bytes += block->bytes;
  return bytes;
}

void Pool::begin_capture(Heap& heap) {
  [[maybe_unused]] const BesideCapture beside;
  const std::lock_guard lock(mutex_);
  BURIN_CHECK(
      !heap.recording, CaptureError,
      "capture: graph pool {} is being recorded to by another capture; captures into one pool take turns",
      heap.id());
  // Captured work cannot wait for work outside, so the host does, once.
  wait_for_all(heap);
  heap.recordings.fetch_add(1, std::memory_order_release);
  heap.handed_out.clear();
  heap.recording = true;
  captures_.fetch_add(1, std::memory_order_release);
}

void Pool::bind_capture(Heap& heap, std::uint64_t capture) {
  const std::lock_guard lock(mutex_);
  routes_.emplace(capture, &heap);
}

void Pool::end_capture(Heap& heap) noexcept {
  [[maybe_unused]] const BesideCapture beside;
  std::vector<Deferred> settled;  // its streams may end with it, outside the lock
  const std::lock_guard lock(mutex_);
  std::erase_if(routes_, [&](const auto& route) { return route.second == &heap; });
  heap.recording = false;
  // The capture has joined its streams, so what was fenced in it has no order left to keep but its queue's.
  for (Queue& queue : heap.queues())
    std::erase_if(queue.fenced, [&](FencedBlock& fenced) {
      for (const Fence& fence : fenced.fences)
        if (fence.capture == 0) return false;
      heap.put(fenced.block, queue);
      return true;
    });
  captures_.fetch_sub(1, std::memory_order_release);
  settle_deferred(settled);
  release_closed();
}

bool Pool::has_allocated(const Heap& heap, const void* data) const noexcept {
  const Block* block = data ? index_.find(data) : nullptr;
  return block && &block->queue->heap == &heap &&
         block->recording == heap.recordings.load(std::memory_order_relaxed);
}

Footprint Pool::footprint(Heap& heap) {
  const std::lock_guard lock(mutex_);
  std::vector<Footprint::Range> given = heap.handed_out;
  std::sort(given.begin(), given.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
  Footprint footprint;
  footprint.recording = heap.recordings.load(std::memory_order_relaxed);
  for (const Footprint::Range& range : given) {
    Footprint::Range* last = footprint.ranges.empty() ? nullptr : &footprint.ranges.back();
    if (last && range.address <= last->address + last->bytes)
      last->bytes = std::max(last->address + last->bytes, range.address + range.bytes) - last->address;
    else
      footprint.ranges.push_back(range);
  }
  return footprint;
}

void Pool::require_unused(Heap& heap, Footprint& footprint) {
  const std::uint64_t recordings = heap.recordings.load(std::memory_order_acquire);
  const std::size_t live = heap.live_blocks.load(std::memory_order_acquire);
  // Between captures blocks only die, so that equal numbers mean the same blocks.
  if (footprint.checked_recordings == recordings && footprint.checked_live_blocks == live) return;
  const std::lock_guard lock(mutex_);
  for (const Segment& segment : heap.segments()) {
    for (const Block* block = segment.first; block; block = block->after) {
      if (block->state.load(std::memory_order_acquire) != BlockState::live) continue;
      if (block->recording == footprint.recording) continue;
      if (heap.recording && block->recording == recordings) continue;  // nothing is written there yet
      for (const Footprint::Range& range : footprint.ranges)
        BURIN_CHECK(
            block->address + block->bytes <= range.address || range.address + range.bytes <= block->address,
            CaptureError,
            "replay: it would overwrite a tensor of {} bytes that another capture into graph pool {} made "
            "and that is still held{}{}; let it go, copy it, or give the graphs pools of their own",
            block->requested_bytes, heap.id(), block->scope && !block->scope->empty() ? ", of " : "",
            block->scope ? *block->scope : std::string());
    }
  }
  if (heap.recording) return;
  footprint.checked_recordings = recordings;
  footprint.checked_live_blocks = live;
}

/// Fences the deferred blocks whose streams are no longer captured. `settled` takes their streams.
void Pool::settle_deferred(std::vector<Deferred>& settled) noexcept {
  for (auto later = deferred_.begin(); later != deferred_.end();) {
    try {
      settled.reserve(settled.size() + 1);
      FencedBlock fenced{later->block, {}};
      for (const std::shared_ptr<StreamState>& user : later->users) {
        const StreamView stream(user.get());
        if (capture_of(stream) != 0) break;
        Event event = take_event(stream.device());
        event.record(stream);
        fenced.fences.push_back({std::move(event), 0});
      }
      if (fenced.fences.size() < later->users.size()) {
        ++later;
        continue;
      }
      later->queue->fenced.push_back(std::move(fenced));
      settled.push_back(std::move(*later));
      later = deferred_.erase(later);
    } catch (...) {  // another time
      ++later;
    }
  }
}

void Pool::stream_ending(StreamView stream) noexcept {
  [[maybe_unused]] const BesideCapture beside;
  const std::lock_guard lock(mutex_);
  for (Heap& heap : heaps_) {
    Queue* queue = heap.find_queue(stream.id());
    if (!queue) continue;
    heap.flush(*queue);
    try {
      if (capture_of(stream) != 0) {
        // No event can be recorded. What a GraphPool got back since the capture began was used only in it.
        queue->idle_at_end = heap.id() != 0 && !queue->ran_graphs;
      } else if (Heap::has_free(*queue) || !queue->fenced.empty() || queue->ran_graphs) {
        Event last = take_event(stream.device());
        last.record(stream);
        queue->last = std::move(last);
      }
    } catch (...) {  // no event: it is waited for now, or nobody takes the blocks over
      try {
        if (capture_of(stream) == 0) {
          if constexpr (kHasCuda)
            if (stream.device().is_cuda())
              cuda::synchronize_stream(stream.device().index, stream.native_handle());
          queue->idle_at_end = true;
        }
      } catch (...) {
      }
    }
    queue->ended = true;
    queue->stream = {};
    queue->stream_state = nullptr;
    queue->owner.reset();
  }
}

}  // namespace detail

std::uint64_t GraphPool::id() const noexcept { return arena_ ? arena_->heap.id() : 0; }
std::size_t GraphPool::reserved_bytes() const {
  return arena_ ? arena_->pool->reserved_bytes(arena_->heap) : 0;
}
std::size_t GraphPool::allocated_bytes() const {
  return arena_ ? arena_->pool->allocated_bytes(arena_->heap) : 0;
}

CaptureRoute::CaptureRoute(GraphPool pool) : pool_(std::move(pool)) {
  BURIN_CHECK(pool_, CaptureError, "capture: no graph pool is given");
  pool_.arena()->pool->begin_capture(pool_.arena()->heap);
}

void CaptureRoute::bind(std::uint64_t capture_id) {
  pool_.arena()->pool->bind_capture(pool_.arena()->heap, capture_id);
}

bool CaptureRoute::has_allocated(const void* data) const noexcept {
  return pool_.arena()->pool->has_allocated(pool_.arena()->heap, data);
}

Footprint CaptureRoute::footprint() const { return pool_.arena()->pool->footprint(pool_.arena()->heap); }

CaptureRoute::~CaptureRoute() { pool_.arena()->pool->end_capture(pool_.arena()->heap); }

ReplayTurn::ReplayTurn(const GraphPool& pool, StreamView stream, Footprint& footprint)
    : pool_(pool), stream_(stream), lock_(pool.arena()->replay_mutex) {
  detail::Arena& arena = *pool.arena();
  arena.pool->require_unused(arena.heap, footprint);
  if (!arena.last_replay || StreamView(arena.last_replay.get()) == stream) return;
  const StreamView last(arena.last_replay.get());
  BURIN_CHECK(
      detail::capture_of(last) == 0, CaptureError,
      "replay: the last replay on graph pool {} was on a stream that is being captured now, so that no "
      "other stream can wait for it; end that capture first",
      arena.heap.id());
  stream.wait(last);
}

void ReplayTurn::taken() noexcept {
  std::shared_ptr<detail::StreamState>& last = pool_.arena()->last_replay;
  if (StreamView(last.get()) != stream_) last = stream_.share();
}

}  // namespace burin
