#pragma once
// Private: the matrix product of the CPU backends.

#include <cstdint>

namespace burin::gemm {

/// c (m x n, row pitch ldc) = a (m x k) * b (k x n), or += if `accumulate`; on the calling thread alone. a
/// and b are row-major with row pitches lda and ldb; a transposed operand is stored as k x m (a) or n x k
/// (b). Any extent may be 0; k = 0 gives zeros. c must not overlap a or b.
void cpu(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, bool a_transposed,
         const float* b, std::int64_t ldb, bool b_transposed, float* c, std::int64_t ldc, bool accumulate);

}  // namespace burin::gemm
