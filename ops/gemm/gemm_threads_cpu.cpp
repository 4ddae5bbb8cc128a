#include <burin/ops/common/activation_apply.h>
#include <burin/ops/gemm/gemm_cpu.h>
#include <burin/runtime/cpu/thread_pool.h>
#include <burin/runtime/divide_up.h>

#include <algorithm>

namespace burin::gemm {
namespace {

constexpr std::int64_t kTileRows = 128;  // a tile of y of 256 KB is still in L2 when its epilogue runs
constexpr std::int64_t kTileColumns = 512;
constexpr std::int64_t kGrain = 1 << 17;  // products, a few microseconds: less is not worth waking a thread

struct TileShape {
  std::int64_t rows, columns;
};

/// Tiles as large as the cache allows, made smaller until every thread has two of them (so that a thread that
/// loses its core holds up the rest by little), but not below the grain.
TileShape choose_tile(const Problem& p, int threads) {
  TileShape tile{std::min(p.m, kTileRows), std::min(p.n, kTileColumns)};
  if (threads == 1) return tile;
  while (tile.rows * tile.columns > 1 &&
         p.batch * divide_up(p.m, tile.rows) * divide_up(p.n, tile.columns) < 2 * threads &&
         tile.rows * tile.columns * std::max<std::int64_t>(p.k, 1) >= 2 * kGrain) {
    std::int64_t& longer = tile.rows > tile.columns ? tile.rows : tile.columns;
    longer = (longer + 1) / 2;
  }
  return tile;
}

void finish(std::int64_t rows, std::int64_t columns, const float* bias, Activation activation, float* y,
            std::int64_t ldy) {
  if (!bias && activation.kind == ActivationKind::none) return;
  with_activation(activation.kind, [&]<ActivationKind kKind>() {
    for (std::int64_t row = 0; row < rows; ++row, y += ldy) {
      if (bias)
        for (std::int64_t i = 0; i < columns; ++i)
          y[i] = activate<kKind>(y[i] + bias[i], activation.alpha, activation.beta);
      else
        for (std::int64_t i = 0; i < columns; ++i)
          y[i] = activate<kKind>(y[i], activation.alpha, activation.beta);
    }
  });
}

}  // namespace

void cpu(ThreadPool& threads, const Problem& p, const float* a, const float* b, const float* bias, float* y) {
  const TileShape tile = choose_tile(p, threads.size());
  const std::int64_t row_tiles = divide_up(p.m, tile.rows);
  const std::int64_t column_tiles = divide_up(p.n, tile.columns);
  const auto multiply = [&](std::int64_t index) {
    const std::int64_t batch = index / (row_tiles * column_tiles);
    const std::int64_t row = index / column_tiles % row_tiles * tile.rows;
    const std::int64_t column = index % column_tiles * tile.columns;
    const std::int64_t rows = std::min(tile.rows, p.m - row);
    const std::int64_t columns = std::min(tile.columns, p.n - column);
    float* out = y + batch * p.y_batch_stride + row * p.ldy + column;
    cpu(rows, columns, p.k, a + batch * p.a_batch_stride + (p.a_transposed ? row : row * p.lda), p.lda,
        p.a_transposed, b + batch * p.b_batch_stride + (p.b_transposed ? column * p.ldb : column), p.ldb,
        p.b_transposed, out, p.ldy);
    finish(rows, columns, bias ? bias + column : nullptr, p.activation, out, p.ldy);
  };
  const std::int64_t count = p.batch * row_tiles * column_tiles;
  const std::int64_t grain =
      std::max<std::int64_t>(1, kGrain / (tile.rows * tile.columns * std::max<std::int64_t>(p.k, 1)));
  threads.for_each(divide_up(count, grain), [&](std::int64_t task) {
    for (std::int64_t i = task * grain; i < std::min(count, (task + 1) * grain); ++i) multiply(i);
  });
}

}  // namespace burin::gemm
