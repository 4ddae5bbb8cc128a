#pragma once

#include <burin/runtime/context.h>
#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

namespace burin {

struct SoftmaxParams {
  int axis = -1;     // negative counts from the end
  bool log = false;  // give the logarithm instead
  bool operator==(const SoftmaxParams&) const = default;
};

/// y = exp(x - m) / sum(exp(x - m)) along one axis, with m the largest element there; with `log`,
/// y = x - m - log(sum(exp(x - m))).
///
/// x of rank >= 1 (f32, f16, bf16, f64), on the context's device, any strides. y is new, of x's shape and
/// dtype, contiguous. f16 and bf16 are computed in f32. Small results are exact to the last subnormal. A line
/// along the axis that holds a NaN or +inf, or only -inf, becomes NaN throughout: inf - inf has no value, and
/// nothing is masked here. Any extent may be 0. Throws ShapeError (axis out of range), DTypeError,
/// DeviceError, OutOfMemory. Runs in the order of the context's stream.
BURIN_API Tensor softmax(Context& ctx, const Tensor& x, const SoftmaxParams& params = {});
/// The same into y, which must be contiguous and must not overlap x.
BURIN_API void softmax_into(Context& ctx, Tensor& y, const Tensor& x, const SoftmaxParams& params = {});

/// softmax with params.log set.
BURIN_API Tensor log_softmax(Context& ctx, const Tensor& x, int axis = -1);

}  // namespace burin
