#include <burin/ops/common/pool2d.h>
#include <burin/runtime/check.h>

#include <algorithm>

namespace burin {
namespace {

constexpr std::int64_t kLimit = std::int64_t{1} << 31;

/// Windows that start in the leading padding, with a dilation wider than the input, can miss it.
bool every_window_holds_an_element(const PoolAxis<std::int64_t>& axis) {
  if (axis.in >= axis.dilation) return true;
  for (std::int64_t o = 0; o < axis.out && axis.start(o) < 0; ++o)
    if (axis.taps(o).first >= axis.in) return false;
  return true;
}

PoolAxis<std::int64_t> make_axis(std::string_view op, std::string_view label, PoolAxis<std::int64_t> axis,
                                 bool ceil_mode) {
  const auto within = [&](std::string_view what, std::int64_t value, std::int64_t least) {
    BURIN_CHECK(value >= least && value < kLimit, ShapeError,
                "{}: {} of {} ({}) must be at least {} and below 2^31", op, what, label, value, least);
  };
  within("the kernel", axis.kernel, 1);
  within("the stride", axis.stride, 1);
  within("the dilation", axis.dilation, 1);
  within("the leading padding", axis.before, 0);
  within("the trailing padding", axis.after, 0);
  BURIN_CHECK(axis.in < (std::int64_t{1} << 61), ShapeError, "{}: {} of x ({}) is too large", op, label,
              axis.in);
  const std::int64_t span = axis.span();
  BURIN_CHECK(axis.before < span && axis.after < span, ShapeError,
              "{}: the padding of {} ({} and {}) must be smaller than the dilated kernel ({})", op, label,
              axis.before, axis.after, span);
  axis.out = 0;
  if (axis.in == 0) return axis;
  const std::int64_t slack = axis.in + axis.before + axis.after - span;
  BURIN_CHECK(slack >= 0, ShapeError,
              "{}: the dilated kernel ({}) is larger than the padded input ({} + {} + {}) in {}", op, span,
              axis.before, axis.in, axis.after, label);
  axis.out = (ceil_mode ? slack + axis.stride - 1 : slack) / axis.stride + 1;
  if ((axis.out - 1) * axis.stride >= axis.in + axis.before) --axis.out;
  BURIN_CHECK(every_window_holds_an_element(axis), ShapeError,
              "{}: a window in {} holds only padding (extent {}, kernel {}, dilation {}, leading padding {})",
              op, label, axis.in, axis.kernel, axis.dilation, axis.before);
  return axis;
}

}  // namespace

Pool2d<std::int64_t> make_pool2d(std::string_view op, const Shape& x,
                                 const std::array<std::int64_t, 2>& kernel,
                                 const std::array<std::int64_t, 2>& stride,
                                 const std::array<std::int64_t, 2>& dilation, const Padding2d& padding,
                                 bool ceil_mode) {
  BURIN_CHECK(x.rank() == 4, ShapeError, "{}: x must be [N, C, H, W] and has shape {}", op, x);
  const std::array<std::int64_t, 2>& steps = stride == std::array<std::int64_t, 2>{-1, -1} ? kernel : stride;
  return {
      .batch = x[0],
      .channels = x[1],
      .h = make_axis(op, "the height",
                     {x[2], 0, kernel[0], steps[0], dilation[0], padding.top, padding.bottom}, ceil_mode),
      .w = make_axis(op, "the width",
                     {x[3], 0, kernel[1], steps[1], dilation[1], padding.left, padding.right}, ceil_mode)};
}

}  // namespace burin
