#pragma once

#include <burin/ops/common/activation.h>
#include <burin/ops/common/padding.h>
#include <burin/runtime/context.h>
#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

#include <array>
#include <cstdint>

namespace burin {

struct Conv2dParams {
  std::array<std::int64_t, 2> stride{1, 1};    // [vertical, horizontal], >= 1; these numbers are below 2^31
  std::array<std::int64_t, 2> dilation{1, 1};  // likewise
  Padding2d padding{};                         // zeros, >= 0 a side; sides may differ
  std::int64_t groups = 1;                     // divides C and K
  Activation activation{};
  bool operator==(const Conv2dParams&) const = default;

  /// [N, K, Ho, Wo] for x [N, C, H, W] and w [K, C / groups, R, S], with
  /// Ho = floor((H + top + bottom - dilation[0] * (R - 1) - 1) / stride[0]) + 1, likewise Wo. Throws
  /// ShapeError if the ranks, channels, groups or parameters do not fit, or if the dilated kernel exceeds the
  /// padded input.
  BURIN_API Shape output_shape(const Shape& x, const Shape& w) const;
};

/// y = activation(cross-correlation(x, w) + bias + residual).
///
/// x [N, C, H, W]; w [K, C / groups, R, S]; bias [K] or undefined; residual of y's shape or undefined; all of
/// one dtype (f32, f16, bf16) and on the context's device, any strides. y [N, K, Ho, Wo] is new, in x's
/// layout. N = 0 and C, H or W = 0 are valid. f16 and bf16 accumulate in f32 and round once, at the end.
/// Throws ShapeError, DTypeError, DeviceError, UnsupportedError (a forced backend that cannot), OutOfMemory.
/// Runs in the order of the context's stream.
BURIN_API Tensor conv2d(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias = {},
                        const Conv2dParams& params = {}, const Tensor& residual = {});
/// The same into y, which must be dense and must not overlap an input (residual may be y itself).
BURIN_API void conv2d_into(Context& ctx, Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias = {},
                           const Conv2dParams& params = {}, const Tensor& residual = {});

}  // namespace burin
