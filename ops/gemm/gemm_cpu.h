#pragma once
// Private: the matrix products of the CPU backends, f32.

#include <burin/ops/gemm/gemm.h>

#include <cstdint>

namespace burin {
class ThreadPool;
}

namespace burin::gemm {

/// c (m x n, row pitch ldc) = a (m x k) * b (k x n), on the calling thread alone. a and b are row-major with
/// row pitches lda and ldb; a transposed operand is stored as k x m (a) or n x k (b). Any extent may be 0;
/// k = 0 gives zeros. c must not overlap a or b.
void cpu(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, bool a_transposed,
         const float* b, std::int64_t ldb, bool b_transposed, float* c, std::int64_t ldc);

/// The same where both operands run along k in memory and m or n is small: dot products of rows of a and rows
/// of b, read in place. `b` is stored n x k.
void cpu_dots(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
              const float* b, std::int64_t ldb, float* c, std::int64_t ldc);

/// The whole problem, split over the threads; bias [n] or null.
void cpu(ThreadPool& threads, const Problem& problem, const float* a, const float* b, const float* bias,
         float* y);

}  // namespace burin::gemm
