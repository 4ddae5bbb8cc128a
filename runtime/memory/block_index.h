#pragma once
// Private: from an address that a CachingPool handed out to its block.

#include <burin/runtime/memory/block.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace burin::detail {

/// A hash table (open addressing) that is read without a lock: whoever holds a live block may look it up
/// while others insert and erase, as its own entry stays where it is. Writers take turns under the pool's
/// mutex.
class BlockIndex {
 public:
  BlockIndex() {
    tables_.push_back(std::make_unique<Table>(1024));
    publish();
  }

  /// The block at this address, or null. The caller owns the block, or the address is not one of the pool's.
  Block* find(const void* address) const noexcept {
    if (address == erased()) return nullptr;
    const Table& table = *current_.load(std::memory_order_acquire);
    for (std::size_t i = table.start(address);; i = (i + 1) & table.mask) {
      const void* key = table.entries[i].address.load(std::memory_order_acquire);
      if (key == address) return table.entries[i].block.load(std::memory_order_relaxed);
      if (!key) return nullptr;
    }
  }

  /// Room for one more entry. Throws std::bad_alloc.
  void reserve_one() {
    Table& table = *tables_.back();
    if ((table.used + 1) * 2 <= table.mask + 1) return;
    // The old table stays for readers that are in it; all the old ones together are no larger than the new.
    auto larger = std::make_unique<Table>((table.mask + 1) * 2);
    for (std::size_t i = 0; i <= table.mask; ++i) {
      const void* key = table.key(i);
      if (key && key != erased()) larger->insert(key, table.entries[i].block.load(std::memory_order_relaxed));
    }
    tables_.push_back(std::move(larger));
    publish();
  }
  /// After reserve_one().
  void insert(Block* block) noexcept { tables_.back()->insert(block->address, block); }
  void erase(const Block* block) noexcept { tables_.back()->erase(block->address); }

 private:
  struct Entry {
    std::atomic<const void*> address{nullptr};
    std::atomic<Block*> block{nullptr};
  };
  struct Table {
    explicit Table(std::size_t size) : mask(size - 1), entries(std::make_unique<Entry[]>(size)) {}
    std::size_t start(const void* address) const noexcept {
      return (reinterpret_cast<std::uintptr_t>(address) / kUnitBytes * 0x9E3779B97F4A7C15u >> 20) & mask;
    }
    void insert(const void* address, Block* block) noexcept {
      std::size_t i = start(address);
      while (key(i) && key(i) != erased()) i = (i + 1) & mask;
      if (!key(i)) ++used;
      entries[i].block.store(block, std::memory_order_relaxed);
      entries[i].address.store(address, std::memory_order_release);
    }
    void erase(const void* address) noexcept {
      std::size_t i = start(address);
      while (key(i) != address) i = (i + 1) & mask;
      entries[i].address.store(erased(), std::memory_order_release);
      // No search goes on beyond an empty entry, so erased ones just before it may be empty too.
      if (key((i + 1) & mask)) return;
      for (; key(i) == erased(); i = (i - 1) & mask) {
        entries[i].address.store(nullptr, std::memory_order_release);
        --used;
      }
    }
    const void* key(std::size_t i) const noexcept {
      return entries[i].address.load(std::memory_order_relaxed);
    }
    const std::size_t mask;
    std::size_t used = 0;  // entries that are not empty
    std::unique_ptr<Entry[]> entries;
  };

  static const void* erased() noexcept { return reinterpret_cast<const void*>(std::uintptr_t{1}); }
  void publish() { current_.store(tables_.back().get(), std::memory_order_release); }

  std::vector<std::unique_ptr<Table>> tables_;
  std::atomic<const Table*> current_{nullptr};
};

}  // namespace burin::detail
