#pragma once

#include <burin/ops/common/padding.h>
#include <burin/runtime/context.h>
#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

#include <array>
#include <cstdint>

namespace burin {

/// How max_pool2d_with_indices counts inside one [H, W] plane: h * W + w, or h + w * H.
enum class IndexOrder : std::uint8_t { row_major, column_major };

struct MaxPool2dParams {
  std::array<std::int64_t, 2> kernel{1, 1};    // [vertical, horizontal], >= 1
  std::array<std::int64_t, 2> stride{-1, -1};  // likewise; {-1, -1} stands for the kernel's extents
  std::array<std::int64_t, 2> dilation{1, 1};  // likewise
  Padding2d padding{};     // stands for -inf; >= 0 and smaller than the dilated kernel, a side
  bool ceil_mode = false;  // also count a last window that overhangs the padded input
  IndexOrder index_order = IndexOrder::row_major;
  bool operator==(const MaxPool2dParams&) const = default;

  /// [N, C, Ho, Wo] for x [N, C, H, W], with
  /// Ho = floor((H + top + bottom - dilation[0] * (kernel[0] - 1) - 1) / stride[0]) + 1, likewise Wo;
  /// ceil_mode takes the ceiling, less the last window if it would start past the input and its leading
  /// padding. An extent of 0 stays 0. Throws ShapeError if the rank or parameters do not fit, if the dilated
  /// kernel exceeds the padded input, or if a window would hold only padding.
  BURIN_API Shape output_shape(const Shape& x) const;
};

/// y[n, c, i, j] = the largest element of window (i, j) of x[n, c]; NaN if the window holds one.
///
/// x [N, C, H, W] (f32, f16, bf16), on the context's device, any strides. y [N, C, Ho, Wo] is new, in x's
/// layout. Throws ShapeError, DTypeError, DeviceError, UnsupportedError (a forced backend that cannot),
/// OutOfMemory. Runs in the order of the context's stream. cuDNN runs only if preferred, and gives the lowest
/// finite number for a window of -inf alone.
BURIN_API Tensor max_pool2d(Context& ctx, const Tensor& x, const MaxPool2dParams& params);
/// The same into y, which must be dense and must not overlap x.
BURIN_API void max_pool2d_into(Context& ctx, Tensor& y, const Tensor& x, const MaxPool2dParams& params);

/// Values, and where each was found: i64, of the same shape and layout.
struct MaxPool2dResult {
  Tensor values, indices;
};

/// The same with the place of each maximum: the first of equal ones, the first NaN if there is one. An index
/// counts from the start of x through all earlier planes, (n * C + c) * H * W + the place in the plane, as
/// ONNX has it, whatever x's strides are. (PyTorch's indices count within the plane: these modulo H * W.)
BURIN_API MaxPool2dResult max_pool2d_with_indices(Context& ctx, const Tensor& x,
                                                  const MaxPool2dParams& params);
/// The same into tensors of one layout.
BURIN_API void max_pool2d_with_indices_into(Context& ctx, MaxPool2dResult& y, const Tensor& x,
                                            const MaxPool2dParams& params);

}  // namespace burin
