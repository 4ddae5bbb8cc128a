#pragma once
// Private: the register tile of the CPU convolution, c (rows x columns) += a (rows x k) * panel (k x
// columns).

#include <cstdint>
#include <cstring>

namespace burin::conv2d_impl {

#if defined(__AVX512F__)
inline constexpr int kVector = 16;
inline constexpr int kRows = 12;  // 24 of the 32 registers hold sums
#elif defined(__AVX__)
inline constexpr int kVector = 8;
inline constexpr int kRows = 6;  // 12 of the 16
#else
inline constexpr int kVector = 4;
inline constexpr int kRows = 6;
#endif
inline constexpr int kPanel = 2 * kVector;  // columns

typedef float Vector __attribute__((vector_size(kVector * sizeof(float))));

inline Vector load(const float* address) {
  Vector value;
  std::memcpy(&value, address, sizeof value);
  return value;
}
inline void store(float* address, Vector value) { std::memcpy(address, &value, sizeof value); }

/// Copies short runs inline: pieces of kWidth, the last one overlapping its neighbour.
template <int kWidth = kVector>
inline void copy_run(const float* from, std::int64_t count, float* to) {
  if (count >= kWidth) {
    for (std::int64_t i = 0; i < count - kWidth; i += kWidth)
      std::memcpy(to + i, from + i, kWidth * sizeof(float));
    std::memcpy(to + count - kWidth, from + count - kWidth, kWidth * sizeof(float));
  } else if constexpr (kWidth > 1) {
    copy_run<kWidth / 2>(from, count, to);
  }
}

/// sums[r][c] = the products of rows of a (pitch a_pitch) with a panel, of which the first kVectors * kVector
/// columns are wanted and whose row i lies at panel(i). a is read in place: its rows are the weights as the
/// model stores them.
template <int kRowCount, int kVectors, class Panel>
[[gnu::always_inline]] inline void multiply_tile(std::int64_t k, const float* a, std::int64_t a_pitch,
                                                 const Panel& panel, Vector (&sums)[kRows][2]) {
  Vector local[kRowCount][kVectors];
  for (auto& row : local)
    for (Vector& sum : row) sum = Vector{};
  for (std::int64_t i = 0; i < k; ++i) {
    Vector columns[kVectors];
    for (int v = 0; v < kVectors; ++v) columns[v] = load(panel(i) + v * kVector);
    for (int r = 0; r < kRowCount; ++r)
      for (int v = 0; v < kVectors; ++v) local[r][v] += a[r * a_pitch + i] * columns[v];
  }
  for (int r = 0; r < kRowCount; ++r)
    for (int v = 0; v < kVectors; ++v) sums[r][v] = local[r][v];
}

/// The same for a row count known at run time.
template <int kVectors, int kRowCount = kRows, class Panel>
[[gnu::always_inline]] inline void multiply_tile(int rows, std::int64_t k, const float* a,
                                                 std::int64_t a_pitch, const Panel& panel,
                                                 Vector (&sums)[kRows][2]) {
  if (rows == kRowCount)
    multiply_tile<kRowCount, kVectors>(k, a, a_pitch, panel, sums);
  else if constexpr (kRowCount > 1)
    multiply_tile<kVectors, kRowCount - 1>(rows, k, a, a_pitch, panel, sums);
}

}  // namespace burin::conv2d_impl
