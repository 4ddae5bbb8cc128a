// Compiled with Eigen renamed to burin_eigen, so that a host program's own Eigen, built with other flags,
// never shares a symbol with this one.
#include <burin/ops/gemm/gemm_cpu.h>

#include <algorithm>

#include <Eigen/Core>

namespace burin::gemm {
namespace {

/// Where packing the operands costs more than it saves; measured. Eigen does not pack for a vector.
bool dots_are_faster(std::int64_t shorter, std::int64_t k) {
  return shorter >= 2 && shorter <= 64 && k >= 32 * shorter;
}

template <int kOrder>
using Operand = Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, kOrder>,
                           Eigen::Unaligned, Eigen::OuterStride<>>;
using Result = Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>,
                          Eigen::Unaligned, Eigen::OuterStride<>>;

template <int kOrderA, int kOrderB>
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
              const float* b, std::int64_t ldb, float* c, std::int64_t ldc) {
  Result(c, m, n, Eigen::OuterStride<>(ldc)).noalias() +=
      Operand<kOrderA>(a, m, k, Eigen::OuterStride<>(lda)) *
      Operand<kOrderB>(b, k, n, Eigen::OuterStride<>(ldb));
}

}  // namespace

void cpu(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, bool a_transposed,
         const float* b, std::int64_t ldb, bool b_transposed, float* c, std::int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (!a_transposed && b_transposed && dots_are_faster(std::min(m, n), k))
    return cpu_dots(m, n, k, a, lda, b, ldb, c, ldc);
  for (std::int64_t row = 0; row < m; ++row) std::fill_n(c + row * ldc, n, 0.0f);
  if (k == 0) return;
  constexpr int kRows = Eigen::RowMajor;
  constexpr int kColumns = Eigen::ColMajor;
  if (a_transposed && b_transposed)
    multiply<kColumns, kColumns>(m, n, k, a, lda, b, ldb, c, ldc);
  else if (a_transposed)
    multiply<kColumns, kRows>(m, n, k, a, lda, b, ldb, c, ldc);
  else if (b_transposed)
    multiply<kRows, kColumns>(m, n, k, a, lda, b, ldb, c, ldc);
  else
    multiply<kRows, kRows>(m, n, k, a, lda, b, ldb, c, ldc);
}

}  // namespace burin::gemm
