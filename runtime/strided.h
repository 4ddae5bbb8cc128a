#pragma once
// Private: loops over several strided operands of one shape.

#include <burin/runtime/tensor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace burin {

/// A loop nest over `extents`, outermost first, in which operand k steps by strides[k] elements. Axes of
/// extent 1 are gone and axes that every operand walks as one are merged, so dense operands of equal layout
/// leave a single axis.
template <int kOperands>
struct StridedLoop {
  int rank = 0;
  std::int64_t count = 1;
  std::int64_t extents[kMaxRank] = {};
  std::int64_t strides[kOperands][kMaxRank] = {};
};

/// The loop over `shape` for operands whose strides are given, each already expanded to `shape`. Axes are
/// ordered so that operand 0 (the output) is walked in memory order. An empty shape gives count 0.
template <int kOperands>
StridedLoop<kOperands> make_strided_loop(const Shape& shape, const std::array<Strides, kOperands>& strides) {
  StridedLoop<kOperands> loop;
  loop.count = shape.count();
  int order[kMaxRank];
  int rank = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 1) continue;
    int at = rank++;
    for (; at > 0 && strides[0][order[at - 1]] < strides[0][axis]; --at) order[at] = order[at - 1];
    order[at] = axis;
  }
  for (int i = 0; i < rank; ++i) {
    const int axis = order[i];
    bool merges = loop.rank > 0;
    for (int k = 0; k < kOperands && merges; ++k)
      merges = loop.strides[k][loop.rank - 1] == strides[static_cast<std::size_t>(k)][axis] * shape[axis];
    if (!merges) ++loop.rank;
    const int last = loop.rank - 1;
    loop.extents[last] = (merges ? loop.extents[last] : 1) * shape[axis];
    for (int k = 0; k < kOperands; ++k) loop.strides[k][last] = strides[static_cast<std::size_t>(k)][axis];
  }
  if (loop.rank == 0) {  // one element
    loop.rank = 1;
    loop.extents[0] = loop.count;
  }
  return loop;
}

/// Covers elements [begin, end) of the loop, in order, by runs along the innermost axis: calls run(offsets,
/// count) with the offset of each operand's first element.
template <int kOperands, class Run>
void for_each_run(const StridedLoop<kOperands>& loop, std::int64_t begin, std::int64_t end, Run&& run) {
  const int inner = loop.rank - 1;
  std::int64_t index[kMaxRank] = {};
  std::array<std::int64_t, kOperands> offsets{};
  std::int64_t rest = begin;
  for (int axis = inner; begin < end && axis >= 0; --axis) {
    index[axis] = rest % loop.extents[axis];
    rest /= loop.extents[axis];
    for (std::size_t k = 0; k < kOperands; ++k) offsets[k] += index[axis] * loop.strides[k][axis];
  }
  while (begin < end) {
    const std::int64_t count = std::min(loop.extents[inner] - index[inner], end - begin);
    run(offsets, count);
    begin += count;
    index[inner] += count;
    for (std::size_t k = 0; k < kOperands; ++k) offsets[k] += count * loop.strides[k][inner];
    for (int axis = inner; axis > 0 && index[axis] == loop.extents[axis]; --axis) {
      index[axis] = 0;
      ++index[axis - 1];
      for (std::size_t k = 0; k < kOperands; ++k)
        offsets[k] += loop.strides[k][axis - 1] - loop.extents[axis] * loop.strides[k][axis];
    }
  }
}

/// Strides of x when read as `shape`, which x's shape broadcasts to: 0 on repeated axes.
Strides broadcast_strides(const Tensor& x, const Shape& shape);

}  // namespace burin
