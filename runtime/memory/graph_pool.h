#pragma once

#include <burin/runtime/export.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace burin {

namespace detail {
struct Arena;
}

/// A handle to memory that only captures allocate from, so that the addresses a graph holds are not handed
/// out to anyone else. Graphs that share a GraphPool reuse each other's memory. Copies are the same pool. The
/// memory lives until the last handle and the last tensor from it are gone; graphs hold handles. Made by
/// CachingPool::make_graph_pool().
class BURIN_API GraphPool {
 public:
  GraphPool() = default;  // no pool
  explicit GraphPool(std::shared_ptr<detail::Arena> arena) : arena_(std::move(arena)) {}

  explicit operator bool() const noexcept { return arena_ != nullptr; }
  std::uint64_t id() const noexcept;    // unique in its CachingPool, from 1
  std::size_t reserved_bytes() const;   // held from the driver
  std::size_t allocated_bytes() const;  // in use by tensors
  bool operator==(const GraphPool&) const = default;

  const std::shared_ptr<detail::Arena>& arena() const noexcept { return arena_; }  // for captures

 private:
  std::shared_ptr<detail::Arena> arena_;
};

}  // namespace burin
