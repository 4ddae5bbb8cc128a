#pragma once

#include <burin/ops/common/activation.h>
#include <burin/runtime/context.h>
#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

namespace burin {

struct LinearParams {
  Activation activation;
  bool operator==(const LinearParams&) const = default;

  /// [..., out] for x [..., in] and w [out, in]. Throws ShapeError.
  BURIN_API Shape output_shape(const Shape& x, const Shape& w) const;
};

/// y = activation(x * transpose(w) + bias): a fully connected layer.
///
/// x [..., in], rank >= 1; w [out, in] (PyTorch's order); bias [out] or undefined; one dtype (f32, f16,
/// bf16); any strides. y [..., out] is new and contiguous. Any extent may be 0; in = 0 gives
/// activation(bias). cuBLASLt may round an f16 or bf16 product once more before it adds the bias. Throws
/// ShapeError, DTypeError, DeviceError, UnsupportedError (a forced backend that cannot), OutOfMemory. Runs in
/// the order of the context's stream.
BURIN_API Tensor linear(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias = {},
                        const LinearParams& params = {});
/// The same into y, which must be contiguous and must not overlap an input.
BURIN_API void linear_into(Context& ctx, Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias = {},
                           const LinearParams& params = {});

}  // namespace burin
