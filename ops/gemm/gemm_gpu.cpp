#include <burin/ops/common/check.h>
#include <burin/ops/common/launch_bound.h>
#include <burin/ops/common/measure.h>
#include <burin/ops/gemm/gemm_cublaslt.h>
#include <burin/ops/gemm/gemm_gpu.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/plan_cache.h>

#include <tuple>
#include <utility>

namespace burin::gemm {
namespace {

/// Who runs a problem, and with what.
struct Plan {
  Backend backend = Backend::cuda;
  std::shared_ptr<const CublasLtPlan> cublaslt;
  std::size_t workspace_bytes = 0;
};

PlanKey key_of(const Context& ctx, const char* op, const Problem& p, const Operands& o) {
  PlanKey key(op);
  key.add(p.m, p.n, p.k, p.batch, p.dtype, p.a_transposed, p.b_transposed, p.lda, p.ldb, p.ldy,
          p.a_batch_stride, p.b_batch_stride, p.y_batch_stride, p.allow_tf32, p.activation.kind,
          p.activation.alpha, p.activation.beta);
  key.add(o.bias != nullptr, alignment(o.a), alignment(o.b), alignment(o.bias), alignment(o.y));
  key.add(ctx.preferred(), ctx.autotune());
  return key;
}

void run(Context& ctx, const char* op, const Plan& plan, const Problem& p, const Operands& o) {
  Tensor workspace;
  if (plan.workspace_bytes > 0)
    workspace = empty(ctx, Shape({static_cast<std::int64_t>(plan.workspace_bytes)}), DType::u8);
  if (plan.backend == Backend::cublaslt)
    run_cublaslt(ctx, op, *plan.cublaslt, o, workspace.raw());
  else
    cuda(ctx.stream(), p, o.a, o.b, o.bias, o.y, workspace.raw());
}

bool is_bound_by_launching(const Problem& p) {
  return 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) *
             static_cast<double>(p.batch) <
         ops::kLaunchBoundProductFlops;
}

Plan prepare(Context& ctx, const char* op, const Problem& p, const Operands& o) {
  constexpr int kCandidates = 8;
  const Plan own{Backend::cuda, nullptr,
                 cuda_workspace_bytes(p, burin::cuda::multiprocessor_count(ctx.device().index))};
  if (ctx.preferred() == Backend::cuda || p.k == 0) return own;
  if (ctx.preferred() == Backend::automatic && !ctx.autotune() && is_bound_by_launching(p)) return own;
  const CublasLtPlans library = prepare_cublaslt(ctx, op, p, o, ctx.autotune() ? kCandidates : 1);
  if (ops::choose(op, ctx, {{Backend::cublaslt, library.refusal.empty(), library.refusal}}) == Backend::cuda)
    return own;

  std::vector<Plan> candidates;
  for (const auto& plan : library.plans)
    candidates.push_back({Backend::cublaslt, plan, workspace_bytes(*plan)});
  if (!ctx.autotune()) return candidates.front();
  if (ctx.preferred() == Backend::automatic) candidates.push_back(own);
  std::size_t best = 0;
  double best_ms = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const double ms = ops::best_ms(ctx, [&] { run(ctx, op, candidates[i], p, o); });
    if (i == 0 || ms < best_ms) std::tie(best, best_ms) = std::pair(i, ms);
  }
  return candidates[best];
}

}  // namespace

void run_on_gpu(Context& ctx, const char* op, const Problem& p, const Operands& o) {
  const auto plan =
      ctx.plans().find_or_make<Plan>(key_of(ctx, op, p, o), [&] { return prepare(ctx, op, p, o); });
  run(ctx, op, *plan, p, o);
}

}  // namespace burin::gemm
