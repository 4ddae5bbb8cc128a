#include <burin/ops/argmax/argmax_impl.h>
#include <burin/ops/common/check.h>

#include <string_view>

namespace burin {
namespace {

constexpr const char* kOp = "argmax";

}

Shape ArgmaxParams::output_shape(const Shape& x) const {
  const Lines lines = lines_along(kOp, x, axis);
  BURIN_CHECK(lines.width > 0, ShapeError, "{}: axis {} of x {} is empty", kOp, axis, x);
  const int reduced = x.normalize_axis(axis);
  IntList extents;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != reduced)
      extents.push_back(x[i]);
    else if (keep_dims)
      extents.push_back(1);
  }
  return Shape(extents);
}

void argmax_into(Context& ctx, Tensor& y, const Tensor& x, const ArgmaxParams& params) {
  const OpScope scope(ctx, kOp, {&x}, y);
  ops::check_device(kOp, ctx, {{"x", x}});
  const Shape shape = params.output_shape(x.shape());
  ops::check_output(kOp, y, dense_spec(DType::i64, shape, ctx.device()), {{"x", x}});
  BURIN_CHECK(y.is_contiguous(), ShapeError, "{}: the output must be contiguous", kOp);
  if (y.count() == 0) return;

  const Tensor dense = contiguous(ctx, x);
  const Lines lines = lines_along(kOp, x.shape(), params.axis);
  if (ops::choose(kOp, ctx) == Backend::cpu)
    argmax_impl::cpu(ctx, lines, dense, y);
  else if constexpr (kHasCuda)
    argmax_impl::cuda(ctx, lines, dense, y);
}

Tensor argmax(Context& ctx, const Tensor& x, const ArgmaxParams& params) {
  ops::check_device(kOp, ctx, {{"x", x}});
  Tensor y = empty(ctx, params.output_shape(x.shape()), DType::i64);
  argmax_into(ctx, y, x, params);
  return y;
}

}  // namespace burin
