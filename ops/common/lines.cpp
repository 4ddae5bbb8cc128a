#include <burin/ops/common/lines.h>
#include <burin/runtime/check.h>

namespace burin {

Lines lines_along(std::string_view op, const Shape& shape, int axis) {
  BURIN_CHECK(axis >= -shape.rank() && axis < shape.rank(), ShapeError,
              "{}: axis {} is out of range for shape {}", op, axis, shape);
  const int middle = shape.normalize_axis(axis);
  Lines lines;
  for (int i = 0; i < middle; ++i) lines.outer *= shape[i];
  lines.width = shape[middle];
  for (int i = middle + 1; i < shape.rank(); ++i) lines.inner *= shape[i];
  return lines;
}

}  // namespace burin
