#include <burin/ops/common/check.h>
#include <burin/ops/conv2d/conv2d.h>
#include <burin/ops/conv2d/conv2d_cuda.h>
#include <burin/ops/conv2d/conv2d_impl.h>
#include <burin/runtime/cpu/thread_pool.h>
#include <burin/runtime/plan_cache.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace burin {

namespace {

using conv2d_impl::Operands;
using conv2d_impl::Plan;
using conv2d_impl::Problem;

/// Windows of a kernel along one axis.
std::int64_t output_extent(const char* axis, std::int64_t input, std::int64_t before, std::int64_t after,
                           std::int64_t kernel, std::int64_t dilation, std::int64_t stride) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  BURIN_CHECK(kernel >= 1, ShapeError, "conv2d: the kernel's {} ({}) must be at least 1", axis, kernel);
  BURIN_CHECK(stride >= 1, ShapeError, "conv2d: the stride of the {} ({}) must be at least 1", axis, stride);
  BURIN_CHECK(dilation >= 1, ShapeError, "conv2d: the dilation of the {} ({}) must be at least 1", axis,
              dilation);
  BURIN_CHECK(before >= 0 && after >= 0, ShapeError,
              "conv2d: the padding of the {} ({} and {}) must not be negative", axis, before, after);
  for (const auto& [what, value] : {std::pair("kernel", kernel),
                                    {"stride", stride},
                                    {"dilation", dilation},
                                    {"padding", std::max(before, after)}})
    BURIN_CHECK(value <= kMost, ShapeError, "conv2d: the {} of the {} ({}) must be below 2^31", what, axis,
                value);
  std::int64_t padded = 0;
  std::int64_t reach = 0;
  const bool fits = !__builtin_add_overflow(input, before, &padded) &&
                    !__builtin_add_overflow(padded, after, &padded) &&
                    !__builtin_mul_overflow(kernel - 1, dilation, &reach) &&
                    !__builtin_add_overflow(reach, std::int64_t{1}, &reach);
  BURIN_CHECK(fits, ShapeError, "conv2d: the {} of the padded input or dilated kernel passes 63 bits", axis);
  BURIN_CHECK(reach <= padded, ShapeError,
              "conv2d: the {} of the dilated kernel ({}) must not exceed that of the padded input ({})", axis,
              reach, padded);
  return (padded - reach) / stride + 1;
}

PlanKey plan_key(const Context& ctx, const Problem& p) {
  const Conv2dParams& params = p.params;
  const Activation& activation = params.activation;
  PlanKey key("conv2d");
  key.add(p.dtype, p.layout, p.x.extents(), p.w.extents(), params.stride, params.dilation, params.padding,
          params.groups, activation.kind, activation.alpha, activation.beta);
  key.add(p.has_bias, p.has_residual, p.allow_tf32, ctx.preferred(), ctx.autotune());
  return key;
}

bool is_aligned(const Tensor& x, const Plan& plan) {
  return reinterpret_cast<std::uintptr_t>(x.raw()) % plan.alignment == 0;
}

bool is_in_form(const Tensor& x, const Plan& plan, Layout layout) {
  return x.dtype() == plan.problem.dtype && x.is_dense_in(layout) && is_aligned(x, plan);
}

/// x if the plan can read it where it is, else a copy that it can.
Tensor in_form(Context& ctx, const Tensor& x, const Plan& plan, Layout layout) {
  if (!x.defined() || is_in_form(x, plan, layout)) return x;
  Tensor copied = empty(ctx, x.shape(), plan.problem.dtype, layout);
  copy(ctx, copied, x);
  return copied;
}

void check_operands(const Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& residual) {
  ops::check_device("conv2d", ctx, {{"x", x}, {"w", w}});
  ops::check_same_dtype("conv2d", {{"x", x}, {"w", w}});
  ops::check_float_dtype("conv2d", {"x", x});
  for (const ops::NamedTensor& optional : {ops::NamedTensor{"bias", bias}, {"residual", residual}}) {
    if (!optional.tensor.defined()) continue;
    ops::check_device("conv2d", ctx, {optional});
    ops::check_same_dtype("conv2d", {{"x", x}, optional});
  }
}

/// Checks an output against everything else; x, w, bias and residual have passed check_operands.
void check_call(const Tensor& y, const Shape& y_shape, const Tensor& x, const Tensor& w, const Tensor& bias,
                const Tensor& residual) {
  ops::check_output("conv2d", y, dense_spec(x.dtype(), y_shape, x.device()),
                    {{"x", x}, {"w", w}, {"bias", bias}});
  if (bias.defined())
    BURIN_CHECK(bias.shape() == Shape({w.extent(0)}), ShapeError,
                "conv2d: bias must have shape [{}], one value for each output channel, and has {}",
                w.extent(0), bias.shape());
  if (residual.defined()) {
    BURIN_CHECK(residual.shape() == y_shape, ShapeError,
                "conv2d: residual must have the output's shape {} and has {}", y_shape, residual.shape());
    BURIN_CHECK(ops::is_same_view(y, residual) || !may_overlap(y, residual), ShapeError,
                "conv2d: the output aliases a part of residual");
  }
}

}  // namespace

Shape Conv2dParams::output_shape(const Shape& x, const Shape& w) const {
  BURIN_CHECK(x.rank() == 4, ShapeError, "conv2d: x must be [N, C, H, W] and has shape {}", x);
  BURIN_CHECK(w.rank() == 4, ShapeError, "conv2d: w must be [K, C / groups, R, S] and has shape {}", w);
  BURIN_CHECK(groups >= 1, ShapeError, "conv2d: groups ({}) must be at least 1", groups);
  BURIN_CHECK(x[1] % groups == 0 && x[1] / groups == w[1], ShapeError,
              "conv2d: channels of x ({}) must equal channels of w ({}) * groups ({})", x[1], w[1], groups);
  BURIN_CHECK(w[0] % groups == 0, ShapeError,
              "conv2d: output channels ({}) must be a multiple of groups ({})", w[0], groups);
  return Shape({x[0], w[0],
                output_extent("height", x[2], padding.top, padding.bottom, w[2], dilation[0], stride[0]),
                output_extent("width", x[3], padding.left, padding.right, w[3], dilation[1], stride[1])});
}

Tensor conv2d(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& params,
              const Tensor& residual) {
  check_operands(ctx, x, w, bias, residual);
  Tensor y = empty(ctx, params.output_shape(x.shape(), w.shape()), x.dtype(), x.layout());
  conv2d_into(ctx, y, x, w, bias, params, residual);
  return y;
}

void conv2d_into(Context& ctx, Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                 const Conv2dParams& params, const Tensor& residual) {
  const OpScope scope(ctx, "conv2d", {&x, &w, &bias, &residual}, y);
  check_operands(ctx, x, w, bias, residual);
  const Shape y_shape = params.output_shape(x.shape(), w.shape());
  check_call(y, y_shape, x, w, bias, residual);
  if (y.count() == 0) return;

  Problem problem;
  problem.dtype = x.dtype();
  problem.layout = y.is_dense_in(x.layout()) ? x.layout() : y.layout();
  problem.x = x.shape();
  problem.w = w.shape();
  problem.y = y_shape;
  problem.params = params;
  problem.has_bias = bias.defined();
  problem.has_residual = residual.defined();
  problem.allow_tf32 = x.dtype() == DType::f32 && ctx.precision().allow_tf32;
  const auto plan = ctx.plans().find_or_make<Plan>(plan_key(ctx, problem),
                                                   [&] { return conv2d_impl::prepare(ctx, problem); });

  const Layout layout = plan->problem.layout;
  const Tensor form_x = in_form(ctx, x, *plan, layout);
  const Tensor form_w = in_form(ctx, w, *plan, layout);
  const Tensor form_bias = in_form(ctx, bias, *plan, Layout::contiguous);
  const Tensor form_residual = in_form(ctx, residual, *plan, layout);
  const bool in_place = is_in_form(y, *plan, layout);
  Tensor form_y = in_place ? y : empty(ctx, y_shape, plan->problem.dtype, layout);
  Tensor workspace;
  if (plan->workspace_bytes > 0)
    workspace = empty(ctx, Shape({static_cast<std::int64_t>(plan->workspace_bytes)}), DType::u8);
  const Operands operands{form_x.raw(), form_w.raw(), form_bias.raw(), form_residual.raw(), form_y.raw()};
  conv2d_impl::run(ctx, *plan, operands, workspace.raw());
  if (!in_place) copy(ctx, y, form_y);
}

namespace conv2d_impl {

Plan prepare(Context& ctx, const Problem& problem) {
  if constexpr (kHasCuda)
    if (ctx.device().is_cuda()) return gpu_plan(ctx, problem);
  Plan plan;
  plan.problem = problem;
  plan.problem.dtype = DType::f32;
  plan.problem.layout = Layout::contiguous;
  plan.cpu = cpu_prepare(plan.problem, ctx.threads().size());
  plan.workspace_bytes = plan.cpu.workspace_bytes;
  return plan;
}

void run(Context& ctx, const Plan& plan, const Operands& operands, void* workspace) {
  switch (plan.backend) {
    case Backend::cpu: cpu_run(plan.cpu, plan.problem, ctx.threads(), operands, workspace); break;
    case Backend::cuda:
      if constexpr (kHasCuda) cuda_run(*plan.cuda, ctx.stream(), operands, workspace);
      break;
    case Backend::cudnn:
      if constexpr (kHasCuda) cudnn_run(ctx, *plan.cudnn, operands, workspace);
      break;
    default: break;
  }
}

}  // namespace conv2d_impl
}  // namespace burin
