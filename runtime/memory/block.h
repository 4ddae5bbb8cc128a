#pragma once
// Private: the records a CachingPool keeps of its memory.

#include <burin/runtime/memory/size_class.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

namespace burin::detail {

struct Queue;
struct Segment;

enum class BlockState : std::uint8_t {
  live,    // in use
  cached,  // on a queue's list of its size class; not merged
  free,    // merged with its free neighbours of the same queue
  fenced,  // free once events have finished
  hole,    // addresses without memory
};

/// A run of addresses within a segment. Blocks tile their segment; a record belongs to its heap. Aligned so
/// that two threads with neighbouring blocks do not share a cache line.
struct alignas(64) Block {
  char* address = nullptr;
  std::size_t bytes = 0;
  std::size_t requested_bytes = 0;  // of the last allocation
  Segment* segment = nullptr;
  Queue* queue = nullptr;   // of the stream in whose order it was freed, or is to be
  Block* before = nullptr;  // neighbours by address
  Block* after = nullptr;
  Block* next = nullptr;                            // on the list that its state says
  Block* previous = nullptr;                        // on a BlockList only
  const std::string* scope = nullptr;               // of the last allocation; kept by the pool
  std::uint64_t recording = 0;                      // of a GraphPool: the capture that allocated it last
  std::atomic<BlockState> state{BlockState::free};  // to and from live and cached without the pool's mutex
};

/// Blocks in no order. Takes no memory, so it cannot fail.
struct BlockList {
  Block* first = nullptr;

  void insert(Block* block) noexcept {
    block->previous = nullptr;
    block->next = first;
    if (first) first->previous = block;
    first = block;
  }
  void erase(Block* block) noexcept {
    if (block->next) block->next->previous = block->previous;
    (block->previous ? block->previous->next : first) = block->next;
  }
};

/// A set of size classes that are not empty, searched upwards.
class ClassBitmap {
 public:
  void set(unsigned index) { words_[index / 64] |= std::uint64_t{1} << index % 64; }
  void clear(unsigned index) { words_[index / 64] &= ~(std::uint64_t{1} << index % 64); }
  /// The first at or above `index`, or kClassCount.
  unsigned next(unsigned index) const {
    for (unsigned word = index / 64; word < words_.size(); ++word) {
      const std::uint64_t below = word == index / 64 ? (std::uint64_t{1} << index % 64) - 1 : 0;
      const std::uint64_t bits = words_[word] & ~below;
      if (bits) return word * 64 + static_cast<unsigned>(std::countr_zero(bits));
    }
    return kClassCount;
  }

 private:
  static_assert(kClassCount % 64 == 0);
  std::array<std::uint64_t, kClassCount / 64> words_{};
};

/// Merged free blocks by size class.
class FreeLists {
 public:
  void insert(Block* block) noexcept {
    const unsigned index = class_of_block(block->bytes);
    lists_[index].insert(block);
    nonempty_.set(index);
  }
  void erase(Block* block) noexcept {
    const unsigned index = class_of_block(block->bytes);
    lists_[index].erase(block);
    if (!lists_[index].first) nonempty_.clear(index);
  }
  /// The smallest block that serves the class, the one of the lowest address among equals; null if none does.
  Block* best_fit(unsigned size_class) const noexcept {
    const unsigned index = nonempty_.next(size_class);
    if (index == kClassCount) return nullptr;
    Block* best = lists_[index].first;
    for (Block* block = best->next; block; block = block->next)
      if (block->bytes < best->bytes || (block->bytes == best->bytes && block->address < best->address))
        best = block;
    return best;
  }
  Block* any() const noexcept {
    const unsigned index = nonempty_.next(0);
    return index == kClassCount ? nullptr : lists_[index].first;
  }
  /// Bytes of the largest block.
  std::size_t largest_bytes() const noexcept {
    std::size_t largest = 0;
    for (unsigned index = nonempty_.next(0); index < kClassCount; index = nonempty_.next(index + 1))
      for (const Block* block = lists_[index].first; block; block = block->next)
        if (block->bytes > largest) largest = block->bytes;
    return largest;
  }

 private:
  std::array<BlockList, kClassCount> lists_;
  ClassBitmap nonempty_;
};

}  // namespace burin::detail
