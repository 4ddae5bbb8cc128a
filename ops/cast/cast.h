#pragma once

#include <burin/runtime/context.h>
#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

namespace burin {

struct CastParams {
  DType dtype = DType::f32;
  bool operator==(const CastParams&) const = default;
};

/// y = the elements of x in another type: floating to integer truncates toward zero and saturates, NaN
/// becomes 0; integer to integer wraps; anything to bool is "not zero"; f16 and bf16 round to nearest even,
/// once.
///
/// x: any dtype, any strides. y is x itself (the same memory) if it is of that dtype already, else new, in
/// x's layout. Throws ShapeError if x is undefined, DeviceError, OutOfMemory. Runs in the order of the
/// context's stream.
BURIN_API Tensor cast(Context& ctx, const Tensor& x, const CastParams& params);
/// The same into y, whose dtype decides: x's shape, any strides; y may be x itself, but must not overlap it
/// otherwise.
BURIN_API void cast_into(Context& ctx, Tensor& y, const Tensor& x);

}  // namespace burin
