#pragma once

#include <burin/runtime/context.h>
#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

#include <cstdint>
#include <string_view>

namespace burin {

enum class BinaryKind : std::uint32_t { add, sub, mul, div };

struct BinaryParams {
  BinaryKind kind = BinaryKind::add;
  bool operator==(const BinaryParams&) const = default;

  /// The shape a and b broadcast to, by NumPy's rule. Throws ShapeError.
  BURIN_API Shape output_shape(const Shape& a, const Shape& b) const;
};

/// y = a + b, a - b, a * b or a / b, element by element, with a and b broadcast to one shape.
///
/// a and b: one dtype, any but bool; any strides. y is new; channels-last if a and b are (whichever has y's
/// shape), else contiguous. Integers wrap (two's complement) and divide toward zero; x / 0 is 0 for integers.
/// f16 and bf16 compute in f32 and round once. Throws ShapeError, DTypeError, DeviceError, OutOfMemory. Runs
/// in the order of the context's stream.
BURIN_API Tensor binary(Context& ctx, const Tensor& a, const Tensor& b, const BinaryParams& params);
/// The same into y: any strides, and y may be a or b itself (in place), but must not overlap them otherwise.
BURIN_API void binary_into(Context& ctx, Tensor& y, const Tensor& a, const Tensor& b,
                           const BinaryParams& params);

inline Tensor add(Context& ctx, const Tensor& a, const Tensor& b) {
  return binary(ctx, a, b, {BinaryKind::add});
}
inline Tensor sub(Context& ctx, const Tensor& a, const Tensor& b) {
  return binary(ctx, a, b, {BinaryKind::sub});
}
inline Tensor mul(Context& ctx, const Tensor& a, const Tensor& b) {
  return binary(ctx, a, b, {BinaryKind::mul});
}
inline Tensor div(Context& ctx, const Tensor& a, const Tensor& b) {
  return binary(ctx, a, b, {BinaryKind::div});
}
inline void add_into(Context& ctx, Tensor& y, const Tensor& a, const Tensor& b) {
  binary_into(ctx, y, a, b, {BinaryKind::add});
}
inline void sub_into(Context& ctx, Tensor& y, const Tensor& a, const Tensor& b) {
  binary_into(ctx, y, a, b, {BinaryKind::sub});
}
inline void mul_into(Context& ctx, Tensor& y, const Tensor& a, const Tensor& b) {
  binary_into(ctx, y, a, b, {BinaryKind::mul});
}
inline void div_into(Context& ctx, Tensor& y, const Tensor& a, const Tensor& b) {
  binary_into(ctx, y, a, b, {BinaryKind::div});
}

/// "add", "sub", "mul", "div".
constexpr std::string_view name(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::add: return "add";
    case BinaryKind::sub: return "sub";
    case BinaryKind::mul: return "mul";
    case BinaryKind::div: return "div";
  }
  return "?";
}

}  // namespace burin
