#pragma once
// Private: the geometry that max_pool2d and avg_pool2d share, on CPU and GPU.

#include <burin/ops/common/padding.h>
#include <burin/runtime/float16.h>
#include <burin/runtime/shape.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace burin {

/// The taps of one window that lie in x along one axis: first, first + dilation, ..., below end.
template <class Index>
struct PoolTaps {
  Index first, end;
};

/// One spatial axis of a pooling call.
template <class Index>
struct PoolAxis {
  Index in, out, kernel, stride, dilation, before, after;

  /// Elements that a window spans, gaps included.
  BURIN_HOST_DEVICE Index span() const { return (kernel - 1) * dilation + 1; }
  /// Where window o starts in x; negative in the leading padding.
  BURIN_HOST_DEVICE Index start(Index o) const { return o * stride - before; }
  BURIN_HOST_DEVICE PoolTaps<Index> taps(Index o) const {
    const Index begin = start(o);
    const Index end = begin + span();
    Index first = begin;
    if (begin < 0) first = dilation == 1 ? 0 : begin + (dilation - 1 - begin) / dilation * dilation;
    return {first, end < in ? end : in};
  }
};

template <class Index>
struct Pool2d {
  Index batch, channels;
  PoolAxis<Index> h, w;

  template <class Other>
  Pool2d<Other> as() const {
    const auto axis = [](const PoolAxis<Index>& a) {
      return PoolAxis<Other>{static_cast<Other>(a.in),       static_cast<Other>(a.out),
                             static_cast<Other>(a.kernel),   static_cast<Other>(a.stride),
                             static_cast<Other>(a.dilation), static_cast<Other>(a.before),
                             static_cast<Other>(a.after)};
    };
    return {static_cast<Other>(batch), static_cast<Other>(channels), axis(h), axis(w)};
  }
};

/// Checks x [N, C, H, W] and the parameters, and works out the output's extents. An axis of extent 0 stays 0;
/// else the output has floor((in + before + after - span) / stride) + 1 windows, or with ceil_mode the
/// ceiling, less a last window that would start past the input and its leading padding. Throws ShapeError
/// unless 1 <= kernel, stride, dilation < 2^31, 0 <= padding < span <= padded input, and each window holds an
/// element.
Pool2d<std::int64_t> make_pool2d(std::string_view op, const Shape& x,
                                 const std::array<std::int64_t, 2>& kernel,
                                 const std::array<std::int64_t, 2>& stride,
                                 const std::array<std::int64_t, 2>& dilation, const Padding2d& padding,
                                 bool ceil_mode);

inline Shape output_shape(const Pool2d<std::int64_t>& p) { return {p.batch, p.channels, p.h.out, p.w.out}; }

}  // namespace burin
