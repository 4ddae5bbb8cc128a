#include <burin/ops/gemm/tile_choice.h>
#include <burin/runtime/divide_up.h>

#include <algorithm>

namespace burin::gemm {
namespace {

constexpr double kBlockClocks = 1500;       // start, first loads and epilogue of a block
constexpr double kSecondPassClocks = 4000;  // one more launch and its latency
constexpr double kBytesPerClock = 2500;     // through the L2 cache, whole device
constexpr int kSplits[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
constexpr std::int64_t kMostWorkspace = std::int64_t{64} << 20;

}  // namespace

std::int64_t k_per_split(const TileShape& tile, std::int64_t k, int splits) {
  return divide_up(std::max<std::int64_t>(divide_up(k, tile.k), 1), splits) * tile.k;
}

TileChoice choose_tile(std::span<const TileShape> tiles, const ProductShape& product, int multiprocessors,
                       bool may_split) {
  TileChoice best;
  double best_clocks = 0;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const TileShape& tile = tiles[i];
    const double blocks = static_cast<double>(divide_up(product.rows, tile.rows)) *
                          static_cast<double>(divide_up(product.cols, tile.cols)) *
                          static_cast<double>(product.batch);
    // Bytes of one split's sums; in double, for a product past 2^63 must not wrap.
    const double sums = static_cast<double>(product.rows) *
                        static_cast<double>(divide_up(product.cols, 4) * 4) *
                        static_cast<double>(product.batch) * sizeof(float);
    for (const int wanted : kSplits) {
      const std::int64_t part = k_per_split(tile, product.k, wanted);
      const int splits = static_cast<int>(std::max<std::int64_t>(divide_up(product.k, part), 1));
      if (splits != wanted || (splits > 1 && part < 2 * tile.k)) continue;
      if (splits > 1 && (!may_split || sums * splits > static_cast<double>(kMostWorkspace))) continue;
      const auto rounds = static_cast<double>(
          static_cast<std::int64_t>((blocks * splits + multiprocessors - 1) / multiprocessors));
      double clocks =
          rounds * (static_cast<double>(tile.rows) * tile.cols * static_cast<double>(part) / tile.rate) +
          kBlockClocks * std::max(1.0, rounds / 4);
      if (splits > 1) clocks += kSecondPassClocks + 2 * sums * splits / kBytesPerClock;
      if (best_clocks != 0 && clocks >= best_clocks) continue;
      best_clocks = clocks;
      best = {static_cast<int>(i), splits, splits > 1 ? static_cast<std::size_t>(sums) * splits : 0};
    }
  }
  return best;
}

}  // namespace burin::gemm
