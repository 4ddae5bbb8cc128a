#pragma once
// Private: where a CachingPool's memory comes from.

#include <burin/runtime/device.h>
#include <burin/runtime/memory/memory_resource.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace burin::detail {

/// Ranges of addresses, and memory behind parts of them. Calls of one source do not overlap.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  virtual Device device() const noexcept = 0;
  virtual MemoryKind kind() const noexcept = 0;
  /// Memory is mapped in multiples of this many bytes, a power of two.
  virtual std::size_t granule() const noexcept = 0;
  /// The most that one call should map: what is mapped together is given back together.
  virtual std::size_t largest_mapping() const noexcept = 0;
  /// How many addresses a segment should have whose first block takes `bytes`, a multiple of the granule.
  /// More than that only where addresses cost no memory.
  virtual std::size_t segment_bytes(std::size_t bytes) const noexcept = 0;
  /// Addresses, aligned to the granule or, if that is less, to MemoryResource::kAlignment. Throws
  /// OutOfMemory, CudaError.
  virtual char* reserve(std::size_t bytes) = 0;
  virtual void release(char* address, std::size_t bytes) noexcept = 0;
  /// Puts memory behind a part of a reserved range, and returns what unmap needs. Throws OutOfMemory,
  /// CudaError.
  virtual std::uint64_t map(char* address, std::size_t bytes) = 0;
  /// Takes back exactly what one call mapped. No work may use it any more.
  virtual void unmap(char* address, std::size_t bytes, std::uint64_t mapping) noexcept = 0;
};

/// Whole segments from another resource.
std::unique_ptr<SegmentSource> make_resource_source(std::shared_ptr<MemoryResource> upstream);
/// Virtual memory of a CUDA device; null if the device has none.
std::unique_ptr<SegmentSource> make_virtual_memory_source(int device_index);

}  // namespace burin::detail
