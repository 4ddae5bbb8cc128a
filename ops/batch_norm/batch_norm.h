#pragma once

#include <burin/ops/common/activation.h>
#include <burin/runtime/context.h>
#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

namespace burin {

struct BatchNormParams {
  float eps = 1e-5f;
  Activation activation = {};
  bool operator==(const BatchNormParams&) const = default;
};

/// y = activation((x - mean) / sqrt(var + eps) * weight + bias), each channel (axis 1) with its own
/// statistics: batch normalisation at inference.
///
/// x [N, C, ...], rank >= 2, f32, f16 or bf16, any strides; mean, var, weight and bias [C], each of f32 or of
/// x's dtype; weight (1) and bias (0) may be undefined. y is new, of x's shape and dtype, in x's layout.
/// Computed in f32, rounded once. Throws ShapeError, DTypeError, DeviceError, OutOfMemory. Runs in the order
/// of the context's stream.
BURIN_API Tensor batch_norm(Context& ctx, const Tensor& x, const Tensor& mean, const Tensor& var,
                            const Tensor& weight = {}, const Tensor& bias = {},
                            const BatchNormParams& params = {});
/// The same into y, which must be dense, and may be x itself (in place), but must not overlap an input
/// otherwise.
BURIN_API void batch_norm_into(Context& ctx, Tensor& y, const Tensor& x, const Tensor& mean,
                               const Tensor& var, const Tensor& weight = {}, const Tensor& bias = {},
                               const BatchNormParams& params = {});

}  // namespace burin
