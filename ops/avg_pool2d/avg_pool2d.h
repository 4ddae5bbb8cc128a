#pragma once

#include <burin/ops/common/padding.h>
#include <burin/runtime/context.h>
#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

#include <array>
#include <cstdint>

namespace burin {

struct AvgPool2dParams {
  std::array<std::int64_t, 2> kernel{1, 1};    // [vertical, horizontal], >= 1
  std::array<std::int64_t, 2> stride{-1, -1};  // likewise; {-1, -1} stands for the kernel's extents
  Padding2d padding{};                         // zeros; >= 0 and smaller than the kernel, a side
  bool ceil_mode = false;                      // also count a last window that overhangs the padded input
  bool count_include_pad = false;  // divide by the window's part of the padded input, not of the input
  bool operator==(const AvgPool2dParams&) const = default;

  /// As MaxPool2dParams::output_shape, without dilation.
  BURIN_API Shape output_shape(const Shape& x) const;
};

/// y[n, c, i, j] = the sum of window (i, j) of x[n, c], divided by the number of its elements in x or, with
/// count_include_pad, in the padded input. What overhangs the padded input (ceil_mode) never counts.
///
/// x [N, C, H, W] (f32, f16, bf16), on the context's device, any strides. y [N, C, Ho, Wo] is new, in x's
/// layout. Sums are in f32, rounded once at the end. Throws ShapeError, DTypeError, DeviceError, OutOfMemory.
/// Runs in the order of the context's stream.
BURIN_API Tensor avg_pool2d(Context& ctx, const Tensor& x, const AvgPool2dParams& params);
/// The same into y, which must be dense and must not overlap x.
BURIN_API void avg_pool2d_into(Context& ctx, Tensor& y, const Tensor& x, const AvgPool2dParams& params);

/// The place of global_avg_pool2d in the list of operators (op_list.h): it has no parameters.
struct GlobalAvgPool2dParams {
  bool operator==(const GlobalAvgPool2dParams&) const = default;

  /// [N, C, 1, 1] for x [N, C, H, W]. Throws ShapeError if H or W is 0.
  BURIN_API Shape output_shape(const Shape& x) const;
};

/// The mean of each plane: [N, C, 1, 1] for x [N, C, H, W]. Throws ShapeError if H or W is 0; else as
/// avg_pool2d.
BURIN_API Tensor global_avg_pool2d(Context& ctx, const Tensor& x);
/// The same into y, which must be dense and must not overlap x.
BURIN_API void global_avg_pool2d_into(Context& ctx, Tensor& y, const Tensor& x);

}  // namespace burin
