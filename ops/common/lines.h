#pragma once
// Private: how operators along one axis see a contiguous tensor.

#include <burin/runtime/shape.h>

#include <cstdint>
#include <string_view>

namespace burin {

/// A contiguous tensor as [outer, width, inner] with the axis in the middle: outer * inner lines of `width`
/// elements that lie `inner` apart.
struct Lines {
  std::int64_t outer = 1, width = 1, inner = 1;
};

/// Throws ShapeError that starts with `op` if the axis is out of range.
Lines lines_along(std::string_view op, const Shape& shape, int axis);

}  // namespace burin
