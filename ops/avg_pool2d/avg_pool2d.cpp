#include <burin/ops/avg_pool2d/avg_pool2d_impl.h>
#include <burin/ops/common/check.h>

#include <string_view>

namespace burin {
namespace {

constexpr const char* kOp = "avg_pool2d";
constexpr const char* kGlobalOp = "global_avg_pool2d";

Pool2d<std::int64_t> pool_of(const AvgPool2dParams& p, const Shape& x) {
  return make_pool2d(kOp, x, p.kernel, p.stride, {1, 1}, p.padding, p.ceil_mode);
}

void check_input(std::string_view op, const Context& ctx, const Tensor& x) {
  ops::check_device(op, ctx, {{"x", x}});
  ops::check_float_dtype(op, {"x", x});
}

/// Calls run(x, y) in f32, whatever the type of the tensors.
template <class Run>
void in_f32(Context& ctx, Layout layout, const Tensor& x, Tensor& y, Run&& run) {
  if (x.dtype() == DType::f32) return run(x, y);
  Tensor wide = empty(ctx, y.shape(), DType::f32, layout);
  run(to(ctx, x, DType::f32), wide);
  copy(ctx, y, wide);
}

}  // namespace

Shape AvgPool2dParams::output_shape(const Shape& x) const { return burin::output_shape(pool_of(*this, x)); }

Shape GlobalAvgPool2dParams::output_shape(const Shape& x) const {
  BURIN_CHECK(x.rank() == 4, ShapeError, "{}: x must be [N, C, H, W] and has shape {}", kGlobalOp, x);
  BURIN_CHECK(x[2] > 0 && x[3] > 0, ShapeError, "{}: x has empty planes (shape {}), which have no mean",
              kGlobalOp, x);
  return {x[0], x[1], 1, 1};
}

void avg_pool2d_into(Context& ctx, Tensor& y, const Tensor& x, const AvgPool2dParams& params) {
  const OpScope scope(ctx, kOp, {&x}, y);
  check_input(kOp, ctx, x);
  const Pool2d<std::int64_t> pool = pool_of(params, x.shape());
  ops::check_output(kOp, y, dense_spec(x.dtype(), output_shape(pool), ctx.device()), {{"x", x}});
  if (y.count() == 0) return;

  const Layout layout = y.is_dense_in(x.layout()) ? x.layout() : y.layout();
  const Tensor dense = to(ctx, x, layout);
  const avg_pool2d_impl::Problem problem{pool, layout, params.count_include_pad};
  if (ops::choose(kOp, ctx) == Backend::cpu) {
    in_f32(ctx, layout, dense, y,
           [&](const Tensor& in, Tensor& out) { avg_pool2d_impl::cpu(ctx, problem, in, out); });
  } else if constexpr (kHasCuda) {
    avg_pool2d_impl::cuda(ctx, problem, dense, y);
  }
}

Tensor avg_pool2d(Context& ctx, const Tensor& x, const AvgPool2dParams& params) {
  check_input(kOp, ctx, x);
  Tensor y = empty(ctx, params.output_shape(x.shape()), x.dtype(), x.layout());
  avg_pool2d_into(ctx, y, x, params);
  return y;
}

void global_avg_pool2d_into(Context& ctx, Tensor& y, const Tensor& x) {
  const OpScope scope(ctx, kGlobalOp, {&x}, y);
  check_input(kGlobalOp, ctx, x);
  const Shape shape = GlobalAvgPool2dParams().output_shape(x.shape());
  ops::check_output(kGlobalOp, y, dense_spec(x.dtype(), shape, ctx.device()), {{"x", x}});
  if (y.count() == 0) return;

  const Layout layout = x.layout();
  const Tensor dense = to(ctx, x, layout);
  if (ops::choose(kGlobalOp, ctx) == Backend::cpu) {
    in_f32(ctx, layout, dense, y,
           [&](const Tensor& in, Tensor& out) { avg_pool2d_impl::cpu_global(ctx, layout, in, out); });
  } else if constexpr (kHasCuda) {
    avg_pool2d_impl::cuda_global(ctx, layout, dense, y);
  }
}

Tensor global_avg_pool2d(Context& ctx, const Tensor& x) {
  check_input(kGlobalOp, ctx, x);
  Tensor y = empty(ctx, GlobalAvgPool2dParams().output_shape(x.shape()), x.dtype());
  global_avg_pool2d_into(ctx, y, x);
  return y;
}

}  // namespace burin
