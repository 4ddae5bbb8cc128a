#include <burin/ops/common/check.h>
#include <burin/ops/max_pool2d/max_pool2d_impl.h>

#include <algorithm>
#include <limits>
#include <string_view>

namespace burin {
namespace {

constexpr const char* kOp = "max_pool2d";

Pool2d<std::int64_t> pool_of(const MaxPool2dParams& p, const Shape& x) {
  return make_pool2d(kOp, x, p.kernel, p.stride, p.dilation, p.padding, p.ceil_mode);
}

Pool2d<std::int64_t> check_input(const Context& ctx, const Tensor& x, const MaxPool2dParams& params) {
  ops::check_device(kOp, ctx, {{"x", x}});
  ops::check_float_dtype(kOp, {"x", x});
  return pool_of(params, x.shape());
}

/// What cuDNN's pooling cannot do, empty if nothing. It knows one padding an axis and floors; a trailing
/// padding that leaves the number of windows as it is changes nothing, for a window is cut off at the end of
/// x either way.
std::string_view cudnn_limit(const Pool2d<std::int64_t>& p) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  for (const PoolAxis<std::int64_t>* axis : {&p.h, &p.w}) {
    if (axis->dilation != 1) return "it has no dilated windows";
    const std::int64_t slack = axis->in + 2 * axis->before - axis->kernel;
    if (slack < 0 || slack / axis->stride + 1 != axis->out)
      return "it has no padding that differs between two sides, and no ceil mode";
  }
  if (std::max(p.h.in * p.w.in, p.h.out * p.w.out) > kMost / std::max<std::int64_t>(1, p.batch * p.channels))
    return "it counts elements in 32 bits";
  return {};
}

}  // namespace

Shape MaxPool2dParams::output_shape(const Shape& x) const { return burin::output_shape(pool_of(*this, x)); }

void max_pool2d_into(Context& ctx, Tensor& y, const Tensor& x, const MaxPool2dParams& params) {
  const OpScope scope(ctx, kOp, {&x}, y);
  const Pool2d<std::int64_t> pool = check_input(ctx, x, params);
  ops::check_output(kOp, y, dense_spec(x.dtype(), output_shape(pool), ctx.device()), {{"x", x}});
  if (y.count() == 0) return;
  // The hand-written kernel is the faster one at small batches, so that cuDNN is used only where it is
  // preferred.
  const std::string_view limit = cudnn_limit(pool);
  const bool forced = ctx.preferred() == Backend::cudnn;
  const Backend backend = ops::choose(kOp, ctx, {{Backend::cudnn, forced && limit.empty(), limit}});

  const Layout layout = y.is_dense_in(x.layout()) ? x.layout() : y.layout();
  const Tensor dense = to(ctx, x, layout);
  const max_pool2d_impl::Problem problem{pool, layout};
  if (backend == Backend::cpu) {
    max_pool2d_impl::cpu(ctx, problem, dense, y);
  } else if constexpr (kHasCuda) {
    if (backend == Backend::cudnn)
      max_pool2d_impl::cudnn(ctx, problem, dense, y);
    else
      max_pool2d_impl::cuda(ctx, problem, dense, y);
  }
}

Tensor max_pool2d(Context& ctx, const Tensor& x, const MaxPool2dParams& params) {
  const Pool2d<std::int64_t> pool = check_input(ctx, x, params);
  Tensor y = empty(ctx, output_shape(pool), x.dtype(), x.layout());
  max_pool2d_into(ctx, y, x, params);
  return y;
}

void max_pool2d_with_indices_into(Context& ctx, MaxPool2dResult& y, const Tensor& x,
                                  const MaxPool2dParams& params) {
  const OpScope scope(ctx, kOp, {&x}, y.values);
  const Pool2d<std::int64_t> pool = check_input(ctx, x, params);
  const Shape shape = output_shape(pool);
  ops::check_output(kOp, y.values, dense_spec(x.dtype(), shape, ctx.device()), {{"x", x}});
  ops::check_output(kOp, y.indices, dense_spec(DType::i64, shape, ctx.device()),
                    {{"x", x}, {"values", y.values}});
  const auto both_dense_in = [&](Layout layout) {
    return y.values.is_dense_in(layout) && y.indices.is_dense_in(layout);
  };
  const bool channels_last =
      both_dense_in(x.layout()) ? x.is_channels_last() : !both_dense_in(Layout::contiguous);
  const Layout layout = channels_last ? Layout::channels_last : Layout::contiguous;
  BURIN_CHECK(both_dense_in(layout), ShapeError, "{}: values and indices must have one layout", kOp);
  if (y.values.count() == 0) return;
  const Backend backend = ops::choose(kOp, ctx, {{Backend::cudnn, false, "it gives no indices"}});

  const Tensor dense = to(ctx, x, layout);
  const max_pool2d_impl::Problem problem{pool, layout};
  if (backend == Backend::cpu) {
    max_pool2d_impl::cpu_with_indices(ctx, problem, params.index_order, dense, y);
  } else if constexpr (kHasCuda) {
    max_pool2d_impl::cuda_with_indices(ctx, problem, params.index_order, dense, y);
  }
}

MaxPool2dResult max_pool2d_with_indices(Context& ctx, const Tensor& x, const MaxPool2dParams& params) {
  const Shape shape = output_shape(check_input(ctx, x, params));
  MaxPool2dResult y{empty(ctx, shape, x.dtype(), x.layout()), empty(ctx, shape, DType::i64, x.layout())};
  max_pool2d_with_indices_into(ctx, y, x, params);
  return y;
}

}  // namespace burin
