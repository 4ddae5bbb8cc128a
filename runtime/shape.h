#pragma once

#include <burin/runtime/export.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace burin {

inline constexpr int kMaxRank = 8;

/// Up to kMaxRank signed integers, stored inline: the common form of Shape, Strides and lists of axes.
class BURIN_API IntList {
 public:
  constexpr IntList() = default;
  /// Throws ShapeError for more than kMaxRank values.
  IntList(std::initializer_list<std::int64_t> values) : IntList(std::span(values.begin(), values.size())) {}
  explicit IntList(std::span<const std::int64_t> values);
  static IntList filled(int size, std::int64_t value);

  int size() const noexcept { return size_; }
  std::int64_t operator[](int i) const { return values_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return values_[static_cast<std::size_t>(i)]; }
  const std::int64_t* begin() const noexcept { return values_.data(); }
  const std::int64_t* end() const noexcept { return values_.data() + size_; }
  void push_back(std::int64_t value);  // throws ShapeError when full
  bool operator==(const IntList&) const = default;

 private:
  std::array<std::int64_t, kMaxRank> values_{};  // zero past size_, so that comparison may be memberwise
  std::int32_t size_ = 0;
};

using Strides = IntList;  // in elements, not bytes

/// The extents of a tensor, outermost first; images are [N, C, H, W]. Rank 0 is a scalar of one element.
/// Construction throws ShapeError for a negative extent, and for a product of the non-zero extents that does
/// not fit in 63 bits.
class BURIN_API Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape(IntList(extents)) {}
  explicit Shape(std::span<const std::int64_t> extents) : Shape(IntList(extents)) {}
  explicit Shape(const IntList& extents);

  int rank() const noexcept { return extents_.size(); }
  std::int64_t operator[](int axis) const { return extents_[axis]; }
  /// Like operator[], and counts negative axes from the end; throws ShapeError when out of range.
  std::int64_t extent(int axis) const { return extents_[normalize_axis(axis)]; }
  /// Maps -rank..rank-1 to 0..rank-1; throws ShapeError otherwise.
  int normalize_axis(int axis) const;
  /// Number of elements: 1 for a scalar, 0 if any extent is 0.
  std::int64_t count() const noexcept { return count_; }
  const IntList& extents() const noexcept { return extents_; }
  const std::int64_t* begin() const noexcept { return extents_.begin(); }
  const std::int64_t* end() const noexcept { return extents_.end(); }
  bool operator==(const Shape&) const = default;

 private:
  IntList extents_;
  std::int64_t count_ = 1;
};

/// "[2, 3]".
BURIN_API std::string to_string(const IntList& values);
BURIN_API std::string to_string(const Shape& shape);

/// Row-major strides of a dense tensor.
BURIN_API Strides contiguous_strides(const Shape& shape);
/// Strides of a dense [N, C, H, W] tensor whose channels are innermost in memory (NHWC). Rank must be 4.
BURIN_API Strides channels_last_strides(const Shape& shape);

/// The shape two operands broadcast to, by NumPy's rule (align at the end; extents equal or 1).
/// Throws ShapeError that starts with `op`.
BURIN_API Shape broadcast(std::string_view op, const Shape& a, const Shape& b);

}  // namespace burin
