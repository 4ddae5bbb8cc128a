#pragma once
// Private: one matrix product on the GPU, by the hand-written kernels or by cuBLASLt.

#include <burin/ops/gemm/gemm.h>
#include <burin/runtime/context.h>

namespace burin::gemm {

/// The addresses of one product; bias may be null.
struct Operands {
  const void* a;
  const void* b;
  const void* bias;
  void* y;
};

/// Launches the problem on the context's stream. Who runs it, and how, is decided once for each problem and
/// alignment and kept in the context's plans under `op`: the preferred backend, or the faster of both where
/// the context measures, or else the hand-written kernels for small products and where cuBLASLt cannot serve,
/// and cuBLASLt for the rest.
void run_on_gpu(Context& ctx, const char* op, const Problem& problem, const Operands& operands);

}  // namespace burin::gemm
