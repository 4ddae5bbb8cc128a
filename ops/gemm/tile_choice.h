#pragma once
// Private: which tile, and into how many parts to split the sums, so that a product fills the device.

#include <cstddef>
#include <cstdint>
#include <span>

namespace burin::gemm {

/// A kernel's tile of y and what one multiprocessor does with it once it is busy.
struct TileShape {
  int rows, cols, k;
  double rate;  // multiply-adds a clock and multiprocessor
};

struct TileChoice {
  int tile = 0;                     // index into the list of shapes
  int splits = 1;                   // parts of k, each summed by a block of its own
  std::size_t workspace_bytes = 0;  // of the partial sums, if splits > 1
};

struct ProductShape {
  std::int64_t rows, cols, k, batch;
};

/// The cheapest choice by a small model of time: the busiest multiprocessor's work, and the cost of a second
/// pass.
TileChoice choose_tile(std::span<const TileShape> tiles, const ProductShape& product, int multiprocessors,
                       bool may_split);

/// The part of k that each split sums: a multiple of the tile's k.
std::int64_t k_per_split(const TileShape& tile, std::int64_t k, int splits);

}  // namespace burin::gemm
