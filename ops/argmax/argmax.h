#pragma once

#include <burin/runtime/context.h>
#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

namespace burin {

struct ArgmaxParams {
  int axis = -1;           // negative counts from the end
  bool keep_dims = false;  // leave the axis with extent 1 instead of dropping it
  bool operator==(const ArgmaxParams&) const = default;

  /// Throws ShapeError if the axis is out of range or has extent 0.
  BURIN_API Shape output_shape(const Shape& x) const;
};

/// The index along one axis of the largest element: the first of equal ones; NaN counts as the largest, so
/// the first NaN wins.
///
/// x of rank >= 1, any dtype, on the context's device, any strides. y is new, i64, contiguous. Extents other
/// than the axis's may be 0. Throws ShapeError, DTypeError, DeviceError, OutOfMemory. Runs in the order of
/// the context's stream.
BURIN_API Tensor argmax(Context& ctx, const Tensor& x, const ArgmaxParams& params = {});
/// The same into y, which must be contiguous and must not overlap x.
BURIN_API void argmax_into(Context& ctx, Tensor& y, const Tensor& x, const ArgmaxParams& params = {});

}  // namespace burin
