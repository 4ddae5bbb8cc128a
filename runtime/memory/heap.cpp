#include <burin/runtime/memory/heap.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <new>
#include <utility>

namespace burin::detail {
namespace {

constexpr std::size_t kLargestSmallBlock = std::size_t{1} << 20;

Queue::Region region_of(unsigned size_class) {
  return class_bytes(size_class) <= kLargestSmallBlock ? Queue::small : Queue::large;
}

std::size_t round_up(std::size_t bytes, std::size_t granule) {
  return (bytes + granule - 1) & ~(granule - 1);
}

bool is_free(const Block* block) { return block->state.load(std::memory_order_relaxed) == BlockState::free; }

bool is_hole(const Block* block) { return block->state.load(std::memory_order_relaxed) == BlockState::hole; }

/// Puts `block` between its neighbour `before` and what follows that.
void link_after(Block* before, Block* block) {
  block->before = before;
  block->after = before->after;
  if (block->after) block->after->before = block;
  before->after = block;
}

void link_before(Block* after, Block* block) {
  block->after = after;
  block->before = after->before;
  (block->before ? block->before->after : after->segment->first) = block;
  after->before = block;
}

/// Takes the record out of its segment. Its addresses belong to a neighbour by then.
void unlink(Block* block) {
  (block->before ? block->before->after : block->segment->first) = block->after;
  if (block->after) block->after->before = block->before;
  delete block;
}

}  // namespace

Heap::Heap(SegmentSource& source, BlockIndex& index, std::uint64_t id)
    : source_(source), index_(index), id_(id) {
  queues_.emplace_back(*this);
}

Heap::~Heap() {
  for (Segment& segment : segments_) {
    for (Block* block = segment.first; block;) {
      const BlockState state = block->state.load(std::memory_order_relaxed);
      if (state != BlockState::free && state != BlockState::hole) index_.erase(block);
      delete std::exchange(block, block->after);
    }
    if (abandoned_) continue;
    while (!segment.mappings.empty()) unmap(segment, segment.mappings.begin());
    source_.release(segment.address, segment.bytes);
  }
}

Queue* Heap::find_queue(std::uint64_t stream_id) noexcept {
  for (Queue& queue : queues_)
    if (queue.stream_id.load(std::memory_order_relaxed) == stream_id) return &queue;
  return nullptr;
}

Queue& Heap::queue_of(StreamView stream) {
  if (Queue* queue = find_queue(stream.id())) return *queue;
  // An ended stream's queue that has been emptied serves again: there are as many as streams at one time.
  auto unused = std::find_if(queues_.begin(), queues_.end(), [](Queue& queue) {
    return queue.ended && !queue.ran_graphs && !has_free(queue) && queue.fenced.empty() &&
           queue.cached_classes.next(0) == kClassCount;
  });
  Queue& queue = unused != queues_.end() ? *unused : queues_.emplace_back(*this);
  queue.ended = false;
  queue.idle_at_end = false;
  queue.last.reset();
  queue.stream = stream;
  queue.device = stream.device();
  queue.owner = stream.share();
  queue.stream_state = queue.owner.lock().get();
  queue.stream_id.store(stream.id(), std::memory_order_release);
  return queue;
}

Block* Heap::take(Queue& from, Queue& to, unsigned size_class) {
  FreeLists& lists = from.free[region_of(size_class)];
  Block* block = lists.best_fit(size_class);
  if (!block) return nullptr;
  index_.reserve_one();
  const std::size_t bytes = class_bytes(size_class);
  std::unique_ptr<Block> rest;
  if (block->bytes > bytes) rest = std::make_unique<Block>();
  lists.erase(block);
  if (rest) {
    rest->address = block->address + bytes;
    rest->bytes = block->bytes - bytes;
    rest->segment = block->segment;
    rest->queue = &from;
    block->bytes = bytes;
    link_after(block, rest.get());
    lists.insert(rest.release());
  }
  block->queue = &to;
  block->state.store(BlockState::live, std::memory_order_relaxed);
  index_.insert(block);
  return block;
}

void Heap::put(Block* block, Queue& queue) noexcept {
  index_.erase(block);
  add_free(block, queue);
}

void Heap::add_free(Block* block, Queue& queue) noexcept {
  FreeLists& lists = queue.free[block->segment->region];
  const auto merges = [&](const Block* other) { return other && is_free(other) && other->queue == &queue; };
  if (merges(block->before)) {
    Block* before = block->before;
    lists.erase(before);
    before->bytes += block->bytes;
    unlink(std::exchange(block, before));
  }
  if (merges(block->after)) {
    lists.erase(block->after);
    block->bytes += block->after->bytes;
    unlink(block->after);
  }
  block->queue = &queue;
  block->state.store(BlockState::free, std::memory_order_relaxed);
  lists.insert(block);
}

void Heap::flush(Queue& queue) noexcept {
  Block* cached = nullptr;
  queue.lock.lock();
  for (unsigned index = queue.cached_classes.next(0); index < kClassCount;
       index = queue.cached_classes.next(index + 1)) {
    for (Block* block = std::exchange(queue.cached[index], nullptr); block;) {
      Block* next = std::exchange(block->next, cached);
      cached = std::exchange(block, next);
    }
    queue.cached_classes.clear(index);
  }
  queue.lock.unlock();
  while (cached) {
    Block* block = std::exchange(cached, cached->next);
    put(block, queue);
  }
}

void Heap::move_free(Queue& from, Queue& to) noexcept {
  for (FreeLists& lists : from.free) {
    while (Block* block = lists.any()) {
      lists.erase(block);
      add_free(block, to);
    }
  }
}

bool Heap::has_free(const Queue& queue) noexcept {
  return queue.free[Queue::small].any() || queue.free[Queue::large].any();
}

// What is free before a hole on the queue, or on no queue, is as good as what would be mapped.
bool Heap::counts_for(const Block* block, const Queue& queue) const noexcept {
  return block && is_free(block) && (block->queue == &queue || block->queue == &queues_.front());
}

Heap::Place Heap::find_place(const Queue& queue, unsigned size_class) const {
  const std::size_t bytes = class_bytes(size_class);
  Place best{.map_bytes = round_up(bytes, source_.granule())};
  for (Block* hole = holes_[region_of(size_class)].first; hole; hole = hole->next) {
    const std::size_t there = counts_for(hole->before, queue) ? hole->before->bytes : 0;
    const std::size_t missing = round_up(bytes - std::min(there, bytes), source_.granule());
    if (missing > hole->bytes || missing > best.map_bytes) continue;
    if (missing < best.map_bytes || !best.hole || hole->address < best.hole->address) best = {hole, missing};
  }
  return best;
}

std::size_t Heap::growth_for(const Queue& queue, unsigned size_class) const {
  return find_place(queue, size_class).map_bytes;
}

void Heap::grow(Queue& queue, unsigned size_class) {
  auto [hole, map_bytes] = find_place(queue, size_class);
  auto fresh = std::make_unique<Block>();
  const bool adds_segment = !hole;
  if (adds_segment) hole = add_segment(region_of(size_class), source_.segment_bytes(map_bytes)).first;
  Segment& segment = *hole->segment;
  try {
    map(segment, hole->address, map_bytes);
  } catch (...) {
    if (adds_segment) drop_segment(segment);
    throw;
  }
  fresh->address = hole->address;
  fresh->bytes = map_bytes;
  fresh->segment = &segment;
  link_before(hole, fresh.get());
  hole->address += map_bytes;
  hole->bytes -= map_bytes;
  if (hole->bytes == 0) {
    holes_[segment.region].erase(hole);
    unlink(hole);
  }
  if (Block* before = fresh->before; counts_for(before, queue) && before->queue != &queue) {
    common().free[segment.region].erase(before);
    add_free(before, queue);
  }
  add_free(fresh.release(), queue);
}

Segment& Heap::add_segment(Queue::Region region, std::size_t bytes) {
  auto hole = std::make_unique<Block>();
  segments_.push_back({.address = nullptr, .bytes = bytes, .region = region, .mappings = {}});
  Segment& segment = segments_.back();
  try {
    segment.address = source_.reserve(bytes);
  } catch (...) {
    segments_.pop_back();
    throw;
  }
  hole->address = segment.address;
  hole->bytes = bytes;
  hole->segment = &segment;
  segment.first = hole.get();
  add_hole(hole.release());
  return segment;
}

void Heap::drop_segment(Segment& segment) noexcept {
  holes_[segment.region].erase(segment.first);
  delete segment.first;
  source_.release(segment.address, segment.bytes);
  segments_.remove_if([&](const Segment& other) { return &other == &segment; });
}

void Heap::map(Segment& segment, char* address, std::size_t bytes) {
  const std::size_t largest = source_.largest_mapping();
  char* const end = address + bytes;
  char* next = address;
  try {
    while (next < end) {
      const std::size_t step = std::min(largest, static_cast<std::size_t>(end - next));
      const auto mapping = segment.mappings.try_emplace(next, Segment::Mapping{step, 0}).first;
      try {
        mapping->second.handle = source_.map(next, step);
      } catch (...) {
        segment.mappings.erase(mapping);
        throw;
      }
      segment.mapped_bytes += step;
      reserved_bytes_ += step;
      next += step;
    }
  } catch (...) {
    while (next > address) {
      const auto mapping = std::prev(segment.mappings.lower_bound(next));
      next = mapping->first;
      unmap(segment, mapping);
    }
    throw;
  }
}

void Heap::unmap(Segment& segment, std::map<char*, Segment::Mapping>::iterator mapping) noexcept {
  const auto& [address, mapped] = *mapping;
  source_.unmap(address, mapped.bytes, mapped.handle);
  segment.mapped_bytes -= mapped.bytes;
  reserved_bytes_ -= mapped.bytes;
  segment.mappings.erase(mapping);
}

bool Heap::has_idle(const Queue& queue, unsigned size_class) const {
  const Block* hole = find_place(queue, size_class).hole;
  for (const Segment& segment : segments_)
    for (const Block* block = segment.first; block; block = block->after)
      if (counts_for(block, queue) && (!hole || block != hole->before) &&
          last_mapping_in(*block) != segment.mappings.end())
        return true;
  return false;
}

std::size_t Heap::release_idle(Queue& queue, unsigned size_class, std::size_t bytes) noexcept {
  const Block* hole = find_place(queue, size_class).hole;
  const Block* counted = hole ? hole->before : nullptr;
  return release_where(bytes,
                       [&](const Block* block) { return counts_for(block, queue) && block != counted; });
}

std::size_t Heap::release_free(std::size_t bytes) noexcept {
  return release_where(bytes,
                       [&](const Block* block) { return is_free(block) && block->queue == &common(); });
}

template <class Predicate>
std::size_t Heap::release_where(std::size_t bytes, const Predicate& may_go) noexcept {
  std::size_t released = 0;
  for (auto segment = segments_.begin(); segment != segments_.end() && released < bytes;) {
    const auto current = segment++;
    released += release_from(*current, bytes - released, may_go);
    if (current->mapped_bytes == 0) drop_segment(*current);
  }
  return released;
}

// From the highest address down, so that what stays is compact.
template <class Predicate>
std::size_t Heap::release_from(Segment& segment, std::size_t bytes, const Predicate& may_go) noexcept {
  std::size_t released = 0;
  Block* block = segment.first;
  while (block->after) block = block->after;
  while (block && released < bytes) {
    Block* next = block->before;
    if (may_go(block)) {
      if (const auto mapping = last_mapping_in(*block); mapping != segment.mappings.end()) {
        const std::size_t mapped = mapping->second.bytes;
        if (!split_around(block, mapping->first, mapped)) return released;
        if (block->before != next) next = block->before;  // what is left below the hole
        unmap(segment, mapping);
        released += mapped;
        add_hole(block);
      }
    }
    block = next;
  }
  return released;
}

std::map<char*, Segment::Mapping>::iterator Heap::last_mapping_in(const Block& block) noexcept {
  auto& mappings = block.segment->mappings;
  char* const end = block.address + block.bytes;
  for (auto mapping = mappings.lower_bound(end); mapping != mappings.begin();) {
    --mapping;
    if (mapping->first < block.address) break;
    if (mapping->first + mapping->second.bytes <= end) return mapping;
  }
  return mappings.end();
}

// The block keeps just these addresses and leaves its list; what it had below and above becomes free blocks.
// False, and nothing has changed, if there is no memory for their records.
bool Heap::split_around(Block* block, char* address, std::size_t bytes) noexcept {
  const auto below = static_cast<std::size_t>(address - block->address);
  const std::size_t above = block->bytes - below - bytes;
  std::unique_ptr<Block> left(below ? new (std::nothrow) Block : nullptr);
  std::unique_ptr<Block> right(above ? new (std::nothrow) Block : nullptr);
  if ((below && !left) || (above && !right)) return false;
  FreeLists& lists = block->queue->free[block->segment->region];
  lists.erase(block);
  if (left) {
    left->address = block->address;
    left->bytes = below;
    left->segment = block->segment;
    left->queue = block->queue;
    link_before(block, left.get());
    lists.insert(left.release());
  }
  if (right) {
    right->address = address + bytes;
    right->bytes = above;
    right->segment = block->segment;
    right->queue = block->queue;
    link_after(block, right.get());
    lists.insert(right.release());
  }
  block->address = address;
  block->bytes = bytes;
  return true;
}

// Neighbouring holes become one.
void Heap::add_hole(Block* block) noexcept {
  block->state.store(BlockState::hole, std::memory_order_relaxed);
  if (Block* after = block->after; after && is_hole(after)) {
    holes_[block->segment->region].erase(after);
    block->bytes += after->bytes;
    unlink(after);
  }
  Block* const before = block->before;
  if (before && is_hole(before)) {
    before->bytes += block->bytes;
    unlink(block);
    return;
  }
  block->queue = nullptr;
  holes_[block->segment->region].insert(block);
}

}  // namespace burin::detail
