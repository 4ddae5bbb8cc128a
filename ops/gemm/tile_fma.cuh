#pragma once
// Private: a tile of y by f32 multiply-adds, exact to IEEE rounding of each.

#include <burin/ops/gemm/tile.cuh>

namespace burin::gemm {

/// kTileRows x kTileCols of y a block, kRows x kCols a thread in groups of four. Stages of 16 along k go
/// through registers into two buffers in shared memory, with k outermost so that a thread reads its four rows
/// at once.
template <int kTileRows, int kTileCols, int kThreadRows, int kThreadCols, int kBlocksPerProcessor>
struct FmaTile {
  using Element = float;
  static constexpr int kRows = kTileRows, kCols = kTileCols, kDepth = 16;
  static constexpr int kColumnThreads = kCols / kThreadCols, kRowThreads = kRows / kThreadRows;
  static constexpr int kThreads = kColumnThreads * kRowThreads;
  static constexpr int kBlocks = kBlocksPerProcessor;
  static constexpr int kPitch = kCols + 4;  // of the finished tile
  static_assert(kColumnThreads % 8 == 0 && kRowThreads % 4 == 0, "a warp covers 4 x 8 threads of the tile");

  struct Stage {
    float a[kDepth][kRows + 4];
    float b[kDepth][kCols + 4];
  };
  static constexpr int kSharedBytes =
      static_cast<int>(2 * sizeof(Stage) > kRows * kPitch * sizeof(float) ? 2 * sizeof(Stage)
                                                                          : kRows * kPitch * sizeof(float));

  /// Leaves the sums over [k, k_end) of the tile at (row, col) in shared memory, row by row at kPitch.
  template <class LoadA, class LoadB>
  __device__ static float* run(const LoadA& load_a, const LoadB& load_b, std::int64_t row, std::int64_t col,
                               std::int64_t k, std::int64_t k_end, void* shared) {
    auto* stages = static_cast<Stage*>(shared);
    using ShareA = ChunkShare<float, kRows, kDepth / 4, kThreads, LoadA>;
    using ShareB = ChunkShare<float, kCols, kDepth / 4, kThreads, LoadB>;
    const ShareA a_share(load_a, row);
    const ShareB b_share(load_b, col);
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int x = (warp % (kColumnThreads / 8)) * 8 + lane % 8;
    const int y = (warp / (kColumnThreads / 8)) * 4 + lane / 8;

    uint4 a_next[ShareA::kCount], b_next[ShareB::kCount];
    float sums[kThreadRows][kThreadCols] = {};
    if (k < k_end) {
      a_share.fetch(k, a_next);
      b_share.fetch(k, b_next);
      put(stages[0].a, a_share, a_next);
      put(stages[0].b, b_share, b_next);
    }
    __syncthreads();
    for (int current = 0; k < k_end; current ^= 1) {
      k += kDepth;
      if (k < k_end) {
        a_share.fetch(k, a_next);
        b_share.fetch(k, b_next);
      }
#pragma unroll
      for (int depth = 0; depth < kDepth; ++depth) {
        float a[kThreadRows], b[kThreadCols];
#pragma unroll
        for (int i = 0; i < kThreadRows; i += 4)
          read4(a + i, &stages[current].a[depth][y * 4 + i * kRowThreads]);
#pragma unroll
        for (int j = 0; j < kThreadCols; j += 4)
          read4(b + j, &stages[current].b[depth][x * 4 + j * kColumnThreads]);
#pragma unroll
        for (int i = 0; i < kThreadRows; ++i)
#pragma unroll
          for (int j = 0; j < kThreadCols; ++j) sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
      }
      if (k < k_end) {
        put(stages[current ^ 1].a, a_share, a_next);
        put(stages[current ^ 1].b, b_share, b_next);
      }
      __syncthreads();
    }

    auto* tile = static_cast<float*>(shared);
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i)
#pragma unroll
      for (int j = 0; j < kThreadCols; j += 4)
        *reinterpret_cast<float4*>(tile + (y * 4 + (i / 4) * 4 * kRowThreads + i % 4) * kPitch + x * 4 +
                                   j * kColumnThreads) =
            make_float4(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]);
    return tile;
  }

 private:
  __device__ static void read4(float* out, const float* shared) {
    const float4 four = *reinterpret_cast<const float4*>(shared);
    out[0] = four.x, out[1] = four.y, out[2] = four.z, out[3] = four.w;
  }
  template <int kPitchOfStage, class Share>
  __device__ static void put(float (&stage)[kDepth][kPitchOfStage], const Share& share,
                             const uint4 (&chunks)[Share::kCount]) {
#pragma unroll
    for (int i = 0; i < Share::kCount; ++i) {
      float* column = &stage[share.chunk() * 4][share.line(i)];
      column[0] = __uint_as_float(chunks[i].x);
      column[kPitchOfStage] = __uint_as_float(chunks[i].y);
      column[2 * kPitchOfStage] = __uint_as_float(chunks[i].z);
      column[3 * kPitchOfStage] = __uint_as_float(chunks[i].w);
    }
  }
};

}  // namespace burin::gemm
