#pragma once
// Private: convolutions by 3 x 3 filters over images so small that a block holds all it needs of one in
// shared memory.

#include <burin/ops/conv2d/conv2d_impl.h>
#include <burin/runtime/stream.h>

#include <cstddef>
#include <optional>

namespace burin::conv2d_impl {

/// How a call is shared out. A thread sums four rows of one column of y for four filters, over its part of
/// the channels.
struct WindowsPlan {
  int splits = 0;         // parts that the channels fall into
  int filter_groups = 0;  // of four filters, in a block
  std::size_t shared_bytes = 0;
};

/// Nothing unless x is contiguous f32, filters are 3 x 3 with stride and dilation 1, groups have a multiple
/// of four of them, y is at most 384 wide, a block's part of x and w fits its share of the shared memory, and
/// the call is so small, or its sums so short, that tiles would be slower.
std::optional<WindowsPlan> windows_plan(const Problem& problem, int multiprocessors);
/// Launches; nothing else.
void windows_run(const WindowsPlan& plan, const Problem& problem, StreamView stream,
                 const Operands& operands);

}  // namespace burin::conv2d_impl
