#include <burin/runtime/check.h>
#include <burin/runtime/shape.h>

#include <algorithm>

namespace burin {

IntList::IntList(std::span<const std::int64_t> values) {
  BURIN_CHECK(values.size() <= static_cast<std::size_t>(kMaxRank), ShapeError,
              "a list of {} values exceeds the largest rank ({})", values.size(), kMaxRank);
  std::copy(values.begin(), values.end(), values_.begin());
  size_ = static_cast<std::int32_t>(values.size());
}

IntList IntList::filled(int size, std::int64_t value) {
  IntList list;
  for (int i = 0; i < size; ++i) list.push_back(value);
  return list;
}

void IntList::push_back(std::int64_t value) {
  BURIN_CHECK(size_ < kMaxRank, ShapeError, "a list of more than {} values exceeds the largest rank",
              kMaxRank);
  values_[static_cast<std::size_t>(size_++)] = value;
}

Shape::Shape(const IntList& extents) : extents_(extents) {
  bool empty = false;
  for (const std::int64_t extent : extents) {
    BURIN_CHECK(extent >= 0, ShapeError, "shape {}: an extent is negative", to_string(extents));
    if (extent == 0) {
      empty = true;
      continue;
    }
    BURIN_CHECK(!__builtin_mul_overflow(count_, extent, &count_), ShapeError,
                "shape {}: the number of elements does not fit in 63 bits", to_string(extents));
  }
  if (empty) count_ = 0;
}

int Shape::normalize_axis(int axis) const {
  BURIN_CHECK(axis >= -rank() && axis < rank(), ShapeError, "axis {} is out of range for shape {}", axis,
              *this);
  return axis < 0 ? axis + rank() : axis;
}

std::string to_string(const IntList& values) { return fmt::format("[{}]", fmt::join(values, ", ")); }

std::string to_string(const Shape& shape) { return to_string(shape.extents()); }

Strides contiguous_strides(const Shape& shape) {
  Strides strides = IntList::filled(shape.rank(), 1);
  for (int axis = shape.rank() - 2; axis >= 0; --axis)
    strides[axis] = strides[axis + 1] * std::max<std::int64_t>(shape[axis + 1], 1);
  return strides;
}

Strides channels_last_strides(const Shape& shape) {
  BURIN_CHECK(shape.rank() == 4, ShapeError, "channels-last needs a shape of rank 4, not {}", shape);
  const std::int64_t c = std::max<std::int64_t>(shape[1], 1);
  const std::int64_t h = std::max<std::int64_t>(shape[2], 1);
  const std::int64_t w = std::max<std::int64_t>(shape[3], 1);
  return {h * w * c, 1, w * c, c};
}

Shape broadcast(std::string_view op, const Shape& a, const Shape& b) {
  IntList extents = IntList::filled(std::max(a.rank(), b.rank()), 1);
  for (int i = 1; i <= extents.size(); ++i) {
    const std::int64_t from_a = i <= a.rank() ? a[a.rank() - i] : 1;
    const std::int64_t from_b = i <= b.rank() ? b[b.rank() - i] : 1;
    BURIN_CHECK(from_a == from_b || from_a == 1 || from_b == 1, ShapeError,
                "{}: shapes {} and {} do not broadcast", op, a, b);
    extents[extents.size() - i] = from_a == 1 ? from_b : from_a;
  }
  return Shape(extents);
}

}  // namespace burin
