#pragma once

#include <burin/runtime/context.h>
#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

namespace burin {

/// The operator's place in the list of operators (op_list.h): it has no parameters.
struct MatmulParams {
  bool operator==(const MatmulParams&) const = default;

  /// [..., m, n] for a [..., m, k] and b [..., k, n]. Throws ShapeError.
  BURIN_API Shape output_shape(const Shape& a, const Shape& b) const;
};

/// y[..., m, n] = sum over k of a[..., m, k] * b[..., k, n]; the leading axes broadcast.
///
/// a [..., m, k], b [..., k, n], rank >= 2, one dtype (f32, f16, bf16), any strides: transposed and sliced
/// views with a unit stride in one of the two last axes are read in place, others are copied first.
/// y [..., m, n] is new and contiguous. Any extent may be 0; k = 0 gives zeros. Throws ShapeError,
/// DTypeError, DeviceError, UnsupportedError (a forced backend that cannot), OutOfMemory. Runs in the order
/// of the context's stream.
BURIN_API Tensor matmul(Context& ctx, const Tensor& a, const Tensor& b);
/// The same into y, which must be contiguous and must not overlap an input.
BURIN_API void matmul_into(Context& ctx, Tensor& y, const Tensor& a, const Tensor& b);

}  // namespace burin
