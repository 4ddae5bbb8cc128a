#pragma once
// Private: matrix products by cuBLASLt, without a type of its.

#include <burin/ops/gemm/gemm_gpu.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace burin::gemm {

/// The largest power of two, up to 256 bytes, that divides an address: what cuBLASLt's choice depends on.
std::size_t alignment(const void* address);

struct CublasLtPlan;  // descriptors and an algorithm; good for all operands of the same alignment
std::size_t workspace_bytes(const CublasLtPlan& plan);

/// Up to `most` plans, the one that cuBLASLt expects to be the fastest first; none, and why, if it cannot
/// serve the problem exactly as it is meant or cannot be opened. k >= 1. Operands count for their alignment.
struct CublasLtPlans {
  std::vector<std::shared_ptr<const CublasLtPlan>> plans;
  std::string refusal;
};
CublasLtPlans prepare_cublaslt(Context& ctx, const char* op, const Problem& problem, const Operands& operands,
                               int most);

/// Launches on the context's stream and does nothing else. `workspace` has workspace_bytes(plan).
void run_cublaslt(Context& ctx, const char* op, const CublasLtPlan& plan, const Operands& operands,
                  void* workspace);

}  // namespace burin::gemm
