// The choice between the GPU backends of conv2d: made once for each plan.

#include <burin/ops/common/check.h>
#include <burin/ops/common/launch_bound.h>
#include <burin/ops/common/measure.h>
#include <burin/ops/conv2d/conv2d_cuda.h>
#include <burin/ops/conv2d/conv2d_impl.h>
#include <burin/runtime/cuda/cuda_calls.h>

#include <algorithm>
#include <utility>

namespace burin::conv2d_impl {
namespace {

/// The form in which the hand-written kernels run fastest. Tensor cores want channels innermost; without that
/// order their operands are gathered element by element, which costs more than turning the tensors round.
Problem cuda_form(Problem problem) {
  const bool tensor_cores = problem.dtype != DType::f32 || problem.allow_tf32;
  if (tensor_cores && problem.w[1] % 8 == 0) problem.layout = Layout::channels_last;
  return problem;
}

Plan cuda_plan(Context& ctx, const Problem& problem) {
  Plan plan;
  plan.backend = Backend::cuda;
  plan.problem = cuda_form(problem);
  plan.cuda =
      std::make_shared<CudaPlan>(cuda_prepare(plan.problem, cuda::multiprocessor_count(ctx.device().index)));
  plan.workspace_bytes = workspace_bytes(*plan.cuda);
  return plan;
}

Plan cudnn_plan(Context& ctx, const Problem& problem) {
  Plan plan;
  plan.backend = Backend::cudnn;
  plan.problem = problem;
  plan.alignment = kCudnnAlignment;
  plan.cudnn = cudnn_prepare(ctx, problem, ctx.autotune());
  plan.workspace_bytes = workspace_bytes(*plan.cudnn);
  return plan;
}

double time_of(Context& ctx, const Plan& plan) {
  return time_ms(ctx, plan.problem, plan.workspace_bytes,
                 [&](const Operands& operands, void* workspace) { run(ctx, plan, operands, workspace); });
}

bool is_bound_by_launching(const Problem& problem) {
  const double terms =
      static_cast<double>(problem.w.count()) / static_cast<double>(std::max<std::int64_t>(problem.w[0], 1));
  return cuda_form(problem).layout == problem.layout &&
         2 * static_cast<double>(problem.y.count()) * terms < ops::kLaunchBoundConvFlops;
}

}  // namespace

double time_ms(Context& ctx, const Problem& problem, std::size_t workspace_bytes,
               const std::function<void(const Operands&, void* workspace)>& launch) {
  const auto scratch = [&](const Shape& shape) { return zeros(ctx, shape, problem.dtype); };
  const Tensor x = scratch(problem.x);
  const Tensor w = scratch(problem.w);
  const Tensor bias = problem.has_bias ? scratch(Shape({problem.w[0]})) : Tensor();
  const Tensor residual = problem.has_residual ? scratch(problem.y) : Tensor();
  Tensor y = scratch(problem.y);
  Tensor workspace = empty(ctx, Shape({static_cast<std::int64_t>(workspace_bytes)}), DType::u8);
  const Operands operands{x.raw(), w.raw(), bias.raw(), residual.raw(), y.raw()};
  return ops::best_ms(ctx, [&] { launch(operands, workspace.raw()); });
}

Plan gpu_plan(Context& ctx, const Problem& problem) {
  std::string refusal = cudnn_refuses(problem);
  const Backend choice = ops::choose("conv2d", ctx, {{Backend::cudnn, refusal.empty(), refusal}});
  if (choice == Backend::cuda) {
    Plan plan = cuda_plan(ctx, problem);
    plan.passed_over = std::move(refusal);
    return plan;
  }
  if (ctx.preferred() == Backend::cudnn) return cudnn_plan(ctx, problem);
  if (!ctx.autotune() && is_bound_by_launching(problem)) {
    Plan plan = cuda_plan(ctx, problem);
    plan.passed_over = "slower to launch, for so small a product";
    return plan;
  }
  try {
    Plan library = cudnn_plan(ctx, problem);
    if (!ctx.autotune()) return library;
    Plan own = cuda_plan(ctx, problem);
    // Turning the tensors round is part of the hand-written kernel's price, and not measured: leave it the
    // calls where it has nothing to turn.
    if (own.problem.layout != problem.layout || time_of(ctx, library) <= time_of(ctx, own)) return library;
    own.passed_over = "slower when measured";
    return own;
  } catch (const UnsupportedError& error) {
    refusal = error.what();
  } catch (const LibraryError& error) {
    refusal = error.what();
  }
  Plan plan = cuda_plan(ctx, problem);
  plan.passed_over = std::move(refusal);
  return plan;
}

}  // namespace burin::conv2d_impl
