#include <burin/ops/gemm/gemm_cpu.h>
#include <burin/runtime/divide_up.h>

#include <cstring>

namespace burin::gemm {
namespace {

#if defined(__AVX512F__)
constexpr std::int64_t kLanes = 16;
#else
constexpr std::int64_t kLanes = 8;
#endif
using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));

constexpr int kTileRows = 3;  // 3 x 4 sums, 3 vectors of a and one of b fill the 16 registers of AVX2
constexpr int kTileColumns = 4;

Vector load(const float* x) {
  Vector v;
  std::memcpy(&v, x, sizeof v);
  return v;
}

Vector load_first(const float* x, std::int64_t count) {
  Vector v{};
  for (std::int64_t i = 0; i < count; ++i) v[i] = x[i];
  return v;
}

float sum(Vector v) {
  float lanes[kLanes];
  std::memcpy(lanes, &v, sizeof v);
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2)
    for (std::int64_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

template <int kRows, int kColumns>
void tile(std::int64_t k, const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* c,
          std::int64_t ldc) {
  Vector sums[kRows][kColumns] = {};
  const auto step = [&](auto&& read) {
    Vector left[kRows];
    for (int i = 0; i < kRows; ++i) left[i] = read(a + i * lda);
    for (int j = 0; j < kColumns; ++j) {
      const Vector right = read(b + j * ldb);
      for (int i = 0; i < kRows; ++i) sums[i][j] += left[i] * right;
    }
  };
  std::int64_t at = 0;
  for (; at + kLanes <= k; at += kLanes) step([at](const float* x) { return load(x + at); });
  if (at < k) step([at, k](const float* x) { return load_first(x + at, k - at); });
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kColumns; ++j) c[i * ldc + j] = sum(sums[i][j]);
}

using Tile = void (*)(std::int64_t, const float*, std::int64_t, const float*, std::int64_t, float*,
                      std::int64_t);
constexpr Tile kTiles[kTileRows][kTileColumns] = {{tile<1, 1>, tile<1, 2>, tile<1, 3>, tile<1, 4>},
                                                  {tile<2, 1>, tile<2, 2>, tile<2, 3>, tile<2, 4>},
                                                  {tile<3, 1>, tile<3, 2>, tile<3, 3>, tile<3, 4>}};

}  // namespace

void cpu_dots(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
              const float* b, std::int64_t ldb, float* c, std::int64_t ldc) {
  // About equal pieces: 10 rows are 3 + 2 + 3 + 2, not 3 + 3 + 3 + 1.
  const std::int64_t row_tiles = divide_up(m, kTileRows);
  const std::int64_t column_tiles = divide_up(n, kTileColumns);
  const auto multiply = [&](std::int64_t row_tile, std::int64_t column_tile) {
    const std::int64_t row = m * row_tile / row_tiles;
    const std::int64_t column = n * column_tile / column_tiles;
    const std::int64_t rows = m * (row_tile + 1) / row_tiles - row;
    const std::int64_t columns = n * (column_tile + 1) / column_tiles - column;
    kTiles[rows - 1][columns - 1](k, a + row * lda, lda, b + column * ldb, ldb, c + row * ldc + column, ldc);
  };
  // The smaller operand is the one that is read again and again, from cache.
  if (m <= n) {
    for (std::int64_t j = 0; j < column_tiles; ++j)
      for (std::int64_t i = 0; i < row_tiles; ++i) multiply(i, j);
  } else {
    for (std::int64_t i = 0; i < row_tiles; ++i)
      for (std::int64_t j = 0; j < column_tiles; ++j) multiply(i, j);
  }
}

}  // namespace burin::gemm
