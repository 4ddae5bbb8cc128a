#pragma once

#include <burin/runtime/context.h>
#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

#include <initializer_list>
#include <span>

namespace burin {

struct ConcatParams {
  int axis = 0;  // negative axes count from the end
  bool operator==(const ConcatParams&) const = default;

  /// The parts' shape with the extents of `axis` added up. Throws ShapeError.
  BURIN_API Shape output_shape(std::span<const Tensor> parts) const;
};

/// y = the parts, one behind the other along an axis.
///
/// parts: one or more tensors of one dtype (any) and one rank >= 1, equal in every other extent; extents of 0
/// are valid; any strides. y is new; channels-last if all parts are, else contiguous. Throws ShapeError,
/// DTypeError, DeviceError, OutOfMemory. Runs in the order of the context's stream.
BURIN_API Tensor concat(Context& ctx, std::span<const Tensor> parts, const ConcatParams& params = {});
inline Tensor concat(Context& ctx, std::initializer_list<Tensor> parts, const ConcatParams& params = {}) {
  return concat(ctx, std::span(parts.begin(), parts.size()), params);
}
/// The same into y, which must be dense and must not overlap a part.
BURIN_API void concat_into(Context& ctx, Tensor& y, std::span<const Tensor> parts,
                           const ConcatParams& params = {});

}  // namespace burin
