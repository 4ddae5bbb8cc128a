#pragma once
// Private: the kernel around a tile, its second pass where the sums were split, and how both are launched.

#include <burin/ops/gemm/tile_choice.h>
#include <burin/ops/gemm/tile_fma.cuh>
#include <burin/ops/gemm/tile_mma.cuh>
#include <burin/runtime/cuda/launch.cuh>
#include <burin/runtime/dtype.h>

#include <cstdint>
#include <span>

namespace burin::gemm {

/// How a launch's blocks map to y. blockIdx.x counts tiles, then batch entries; blockIdx.y counts splits of
/// k.
struct TileGrid {
  std::int64_t k, k_per_split;
  FastDivmod tiles, inner_tiles;  // of a batch entry; of the axis that neighbouring blocks walk along
  bool rows_inner;                // neighbouring blocks share columns, not rows
  float* partial;                 // [splits][batch][rows][partial_pitch], or null: sums are finished at once
  std::int64_t partial_pitch, partial_batch_stride, partial_split_stride;
};

template <class Tile, class LoadA, class LoadB, class T>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    tile_kernel(const TileGrid grid, LoadA a, LoadB b, Output<T> out) {
  extern __shared__ uint4 tile_memory[];
  std::uint32_t tile_of_entry, inner;
  const std::uint32_t entry = grid.tiles.divide(blockIdx.x, tile_of_entry);
  const std::uint32_t outer = grid.inner_tiles.divide(tile_of_entry, inner);
  const std::int64_t row = std::int64_t{grid.rows_inner ? inner : outer} * Tile::kRows;
  const std::int64_t col = std::int64_t{grid.rows_inner ? outer : inner} * Tile::kCols;
  a.select(entry);
  b.select(entry);
  cuda::wait_for_previous();

  const std::int64_t k = blockIdx.y * grid.k_per_split;
  const std::int64_t k_end = k + grid.k_per_split < grid.k ? k + grid.k_per_split : grid.k;
  const float* tile = Tile::run(a, b, row, col, k, k_end, tile_memory);
  __syncthreads();

  out.select(entry);
  constexpr int kItems = kChunk<T>;
  constexpr int kChunksPerRow = Tile::kCols / kItems;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kRows * kChunksPerRow; i += Tile::kThreads) {
    const int tile_row = i / kChunksPerRow, tile_col = i % kChunksPerRow * kItems;
    const float* sums = tile + tile_row * Tile::kPitch + tile_col;
    float sum[kItems];
#pragma unroll
    for (int j = 0; j < kItems; j += 4) {
      const float4 four = *reinterpret_cast<const float4*>(sums + j);
      sum[j] = four.x, sum[j + 1] = four.y, sum[j + 2] = four.z, sum[j + 3] = four.w;
    }
    if (!grid.partial) {
      out.store(row + tile_row, col + tile_col, sum);
      continue;
    }
    if (row + tile_row >= out.rows) break;
    float* at = grid.partial + blockIdx.y * grid.partial_split_stride + entry * grid.partial_batch_stride +
                (row + tile_row) * grid.partial_pitch + col + tile_col;
#pragma unroll
    for (int j = 0; j < kItems; j += 4)
      if (col + tile_col + j < grid.partial_pitch)
        *reinterpret_cast<float4*>(at + j) = make_float4(sum[j], sum[j + 1], sum[j + 2], sum[j + 3]);
  }
}

/// Adds up the splits, in their order, and finishes the sums: a thread a chunk of y.
template <class T>
__global__ void __launch_bounds__(256) sum_splits_kernel(const TileGrid grid, Output<T> out, int splits,
                                                         std::int64_t chunks, std::int64_t chunks_per_row) {
  constexpr int kItems = kChunk<T>;
  const std::int64_t chunk = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  cuda::wait_for_previous();
  if (chunk >= chunks) return;
  const std::int64_t row_of_all = chunk / chunks_per_row;
  const std::int64_t col = chunk % chunks_per_row * kItems;
  const std::int64_t entry = row_of_all / out.rows, row = row_of_all % out.rows;
  const float* partial = grid.partial + entry * grid.partial_batch_stride + row * grid.partial_pitch + col;
  float sum[kItems] = {};
#pragma unroll 4
  for (int split = 0; split < splits; ++split, partial += grid.partial_split_stride) {
#pragma unroll
    for (int j = 0; j < kItems; j += 4) {
      if (col + j >= grid.partial_pitch) break;
      const float4 four = *reinterpret_cast<const float4*>(partial + j);
      sum[j] += four.x, sum[j + 1] += four.y, sum[j + 2] += four.z, sum[j + 3] += four.w;
    }
  }
  out.select(entry);
  out.store(row, col, sum);
}

/// Launches the tiles of out.rows x out.cols, `batch` times, and the second pass if `splits` > 1 (then
/// `workspace` has TileChoice::workspace_bytes).
template <class Tile, class LoadA, class LoadB, class T>
void launch_tiles(const char* op, StreamView stream, const LoadA& a, const LoadB& b, const Output<T>& out,
                  std::int64_t k, std::int64_t batch, int splits, bool rows_inner, void* workspace) {
  const std::int64_t row_tiles = (out.rows - 1) / Tile::kRows + 1;
  const std::int64_t col_tiles = (out.cols - 1) / Tile::kCols + 1;
  const unsigned blocks = cuda::blocks_for(op, row_tiles * col_tiles * batch, 1);
  TileGrid grid = {};
  grid.k = k;
  grid.k_per_split = k_per_split({Tile::kRows, Tile::kCols, Tile::kDepth, 0}, k, splits);
  grid.tiles = FastDivmod(static_cast<std::uint32_t>(row_tiles * col_tiles));
  grid.inner_tiles = FastDivmod(static_cast<std::uint32_t>(rows_inner ? row_tiles : col_tiles));
  grid.rows_inner = rows_inner;
  if (splits > 1) {
    grid.partial = static_cast<float*>(workspace);
    grid.partial_pitch = (out.cols + 3) / 4 * 4;
    grid.partial_batch_stride = out.rows * grid.partial_pitch;
    grid.partial_split_stride = batch * grid.partial_batch_stride;
  }
  cuda::launch(op, tile_kernel<Tile, LoadA, LoadB, T>,
               {.grid = dim3(blocks, static_cast<unsigned>(splits)),
                .block = dim3(Tile::kThreads),
                .shared_bytes = Tile::kSharedBytes,
                .starts_early = true},
               stream, grid, a, b, out);
  if (splits > 1) {
    const std::int64_t chunks_per_row = (out.cols - 1) / kChunk<T> + 1;
    const std::int64_t chunks = batch * out.rows * chunks_per_row;
    cuda::launch(op, sum_splits_kernel<T>,
                 {.grid = dim3(cuda::blocks_for(op, chunks, 256)), .block = dim3(256), .starts_early = true},
                 stream, grid, out, splits, chunks, chunks_per_row);
  }
}

template <class Tile>
constexpr TileShape shape_of(double rate) {
  return {Tile::kRows, Tile::kCols, Tile::kDepth, rate};
}

/// The tiles there are, from large to small, with their shapes in the same order.
using FmaLarge = FmaTile<128, 128, 8, 8, 2>;
using FmaMedium = FmaTile<64, 64, 8, 4, 4>;
using FmaSmall = FmaTile<32, 32, 4, 4, 8>;
inline constexpr TileShape kFmaTiles[] = {shape_of<FmaLarge>(100), shape_of<FmaMedium>(80),
                                          shape_of<FmaSmall>(45)};

template <class T>
using MmaLarge = MmaTile<T, 128, 128, 2, 4, 3, 2>;
template <class T>
using MmaTall = MmaTile<T, 128, 64, 2, 2, 3, 3>;
template <class T>
using MmaSmall = MmaTile<T, 64, 64, 2, 2, 4, 3>;
template <class T>
inline constexpr TileShape kMmaTiles[] = {shape_of<MmaLarge<T>>(sizeof(T) == 2 ? 640 : 320),
                                          shape_of<MmaTall<T>>(sizeof(T) == 2 ? 560 : 280),
                                          shape_of<MmaSmall<T>>(sizeof(T) == 2 ? 420 : 210)};

/// The tile shapes for an element type and precision. Tensor-core tiles other than the smallest (the last)
/// exist only for operands in aligned chunks; any of them splits k alike.
inline std::span<const TileShape> tiles_for(DType dtype, bool allow_tf32, bool aligned_chunks) {
  if (dtype == DType::f32 && !allow_tf32) return kFmaTiles;
  const std::span<const TileShape> tiles = dtype == DType::f32 ? kMmaTiles<float> : kMmaTiles<f16>;
  return aligned_chunks ? tiles : tiles.last(1);
}

}  // namespace burin::gemm
