#include <burin/ops/common/check.h>
#include <burin/ops/softmax/softmax_impl.h>

#include <string_view>

namespace burin {
namespace {

constexpr const char* kOp = "softmax";

void check_input(const Context& ctx, const Tensor& x) {
  ops::check_device(kOp, ctx, {{"x", x}});
  BURIN_CHECK(is_floating(x.dtype()), DTypeError, "{}: x is {} and must be f32, f16, bf16 or f64", kOp,
              name(x.dtype()));
}

}  // namespace

void softmax_into(Context& ctx, Tensor& y, const Tensor& x, const SoftmaxParams& params) {
  const OpScope scope(ctx, params.log ? "log_softmax" : kOp, {&x}, y);
  check_input(ctx, x);
  const Lines lines = lines_along(kOp, x.shape(), params.axis);
  ops::check_output(kOp, y, dense_spec(x.dtype(), x.shape(), ctx.device()), {{"x", x}});
  BURIN_CHECK(y.is_contiguous(), ShapeError, "{}: the output must be contiguous", kOp);
  if (y.count() == 0) return;

  const Tensor dense = contiguous(ctx, x);
  if (ops::choose(kOp, ctx) != Backend::cpu) {
    if constexpr (kHasCuda) softmax_impl::cuda(ctx, lines, params.log, dense, y);
  } else if (x.dtype() == DType::f32 || x.dtype() == DType::f64) {
    softmax_impl::cpu(ctx, lines, params.log, dense, y);
  } else {
    Tensor wide = empty(ctx, x.shape(), DType::f32);
    softmax_impl::cpu(ctx, lines, params.log, to(ctx, dense, DType::f32), wide);
    copy(ctx, y, wide);
  }
}

Tensor softmax(Context& ctx, const Tensor& x, const SoftmaxParams& params) {
  check_input(ctx, x);
  Tensor y = empty(ctx, x.shape(), x.dtype());
  softmax_into(ctx, y, x, params);
  return y;
}

Tensor log_softmax(Context& ctx, const Tensor& x, int axis) {
  return softmax(ctx, x, {.axis = axis, .log = true});
}

}  // namespace burin
