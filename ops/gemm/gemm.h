#pragma once
// Private: matrix products on raw, checked memory, shared by matmul and linear.

#include <burin/ops/common/activation.h>
#include <burin/runtime/dtype.h>
#include <burin/runtime/stream.h>

#include <cstddef>
#include <cstdint>

namespace burin::gemm {

/// y[b] (m x n) = activation(A[b] (m x k) * B[b] (k x n) + bias), row by row.
///
/// Pitches and strides count elements. A is stored [m][k], or [k][m] if transposed, with `lda` from row to
/// row as stored; B is stored [k][n], or [n][k] if transposed; y is [m][n]. Batch strides may be 0. m, n,
/// batch >= 1; k >= 0, and k = 0 gives activation(bias). f32, f16 or bf16; sums are f32 and are rounded once.
struct Problem {
  std::int64_t m, n, k, batch;
  DType dtype;
  bool a_transposed, b_transposed;
  std::int64_t lda, ldb, ldy;
  std::int64_t a_batch_stride, b_batch_stride, y_batch_stride;
  bool allow_tf32;
  Activation activation;
};

/// Bytes of scratch that let `cuda` share out the sums of a small y with a long k; 0 where that gains
/// nothing. `multiprocessors` are those of the device that will run it.
std::size_t cuda_workspace_bytes(const Problem& problem, int multiprocessors);

/// The hand-written kernels. `bias` is [n] or null. `workspace` has cuda_workspace_bytes, or is null: then no
/// sum is shared out. Operands may have any alignment.
void cuda(StreamView stream, const Problem& problem, const void* a, const void* b, const void* bias, void* y,
          void* workspace = nullptr);

}  // namespace burin::gemm
