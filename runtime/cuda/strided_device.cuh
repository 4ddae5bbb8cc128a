#pragma once
// Private: indices of a strided loop on the device.

#include <burin/runtime/strided.h>

#include <cstdint>

namespace burin::cuda {

template <int kOperands>
struct Offsets {
  std::int64_t of[kOperands];
};

namespace detail {
template <class Index, int kOperands>
__device__ Offsets<kOperands> offsets_by(const StridedLoop<kOperands>& loop, Index i) {
  Offsets<kOperands> offsets = {};
#pragma unroll 1
  for (int axis = loop.rank - 1; axis > 0; --axis) {
    const auto extent = static_cast<Index>(loop.extents[axis]);
    const Index rest = i / extent;
    const auto index = static_cast<std::int64_t>(i - rest * extent);
    i = rest;
#pragma unroll
    for (int k = 0; k < kOperands; ++k) offsets.of[k] += index * loop.strides[k][axis];
  }
#pragma unroll
  for (int k = 0; k < kOperands; ++k) offsets.of[k] += static_cast<std::int64_t>(i) * loop.strides[k][0];
  return offsets;
}
}  // namespace detail

/// Where element i of the loop, in row-major order, lies in each operand. 64-bit division is several times
/// dearer than 32-bit, so loops that fit take the latter.
template <int kOperands>
__device__ Offsets<kOperands> offsets_of(const StridedLoop<kOperands>& loop, std::int64_t i) {
  if (loop.count <= 0x7FFFFFFF) return detail::offsets_by(loop, static_cast<std::uint32_t>(i));
  return detail::offsets_by(loop, static_cast<std::uint64_t>(i));
}

}  // namespace burin::cuda
