#pragma once
// Private: a tile of y on the tensor cores, from f16, bf16, or f32 rounded to TF32; sums are f32.

#include <burin/ops/gemm/tile.cuh>

namespace burin::gemm {

/// B stored [k][n], each chunk along n. The last chunk of a row may be partial.
template <class T>
struct AcrossLoader {
  const T* data;
  std::int64_t k_stride, batch_stride;
  std::int64_t lines, k;

  __device__ void select(std::int64_t batch) { data += batch * batch_stride; }
  __device__ Source<T> chunk(std::int64_t line, std::int64_t at) const {
    const std::int64_t left = lines - line;
    if (at >= k || left <= 0) return {data, 0};
    return {data + at * k_stride + line, left >= kChunk<T> ? 16 : static_cast<int>(left * sizeof(T))};
  }
};

/// Stages of 128 bytes along k flow through a ring of asynchronous copies in shared memory. Operands lie
/// there in lines of 128 bytes, chunk c of line l at place c ^ (l % 8), so that neither copies nor ldmatrix
/// meet bank conflicts. Each of kWarpRows x kWarpCols warps owns an equal part of the tile.
template <class T, int kTileRows, int kTileCols, int kWarpRows, int kWarpCols, int kStages,
          int kBlocksPerProcessor>
struct MmaTile {
  using Element = T;
  static constexpr int kRows = kTileRows, kCols = kTileCols;
  static constexpr int kDepth = 128 / static_cast<int>(sizeof(T));
  static constexpr int kThreads = 32 * kWarpRows * kWarpCols;
  static constexpr int kBlocks = kBlocksPerProcessor;
  static constexpr int kPitch = kCols + 8;  // of the finished tile
  static constexpr int kStageBytes = (kRows + kCols) * 128;
  static constexpr int kSharedBytes =
      kStages * kStageBytes > kRows* kPitch * 4 ? kStages* kStageBytes : kRows* kPitch * 4;
  static constexpr int kRowsOfWarp = kRows / kWarpRows, kColsOfWarp = kCols / kWarpCols;
  static constexpr int kRowFragments = kRowsOfWarp / 16, kColFragments = kColsOfWarp / 8;
  static_assert(kStages >= 3 && kRowsOfWarp % 16 == 0 && kColsOfWarp % 16 == 0);

  /// Leaves the sums over [k, k_end) of the tile at (row, col) in shared memory, row by row at kPitch.
  template <class LoadA, class LoadB>
  __device__ static float* run(const LoadA& load_a, const LoadB& load_b, std::int64_t row, std::int64_t col,
                               std::int64_t k, std::int64_t k_end, void* shared) {
    auto* ring = static_cast<char*>(shared);
    const StageOf<kRows, LoadA> a(load_a, row);
    const StageOf<kCols, LoadB> b(load_b, col);
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int row_of_warp = warp / kWarpCols * kRowsOfWarp, col_of_warp = warp % kWarpCols * kColsOfWarp;

    std::int64_t k_next = k;
    const auto copy_next = [&](int slot) {
      if (k_next < k_end) {
        a.copy(k_next, ring + slot * kStageBytes);
        b.copy(k_next, ring + slot * kStageBytes + kRows * 128);
        k_next += kDepth;
      }
      commit_copies();  // an empty group at the end, so that counting stays the same
    };
#pragma unroll
    for (int slot = 0; slot < kStages - 1; ++slot) copy_next(slot);

    float sums[kRowFragments][kColFragments][4] = {};
    int slot = 0, free_slot = kStages - 1;
    for (; k < k_end; k += kDepth) {
      wait_for_copies<kStages - 2>();
      __syncthreads();
      copy_next(free_slot);
      const char* a_stage = ring + slot * kStageBytes;
      const char* b_stage = a_stage + kRows * 128;
#pragma unroll
      for (int step = 0; step < 4; ++step) {  // 32 bytes of k each
        std::uint32_t a_fragments[kRowFragments][4], b_fragments[kColFragments][2];
#pragma unroll
        for (int i = 0; i < kRowFragments; ++i) {
          const int line = row_of_warp + i * 16 + lane % 16;
          load_matrices(a_fragments[i], a_stage + place(line, step * 2 + lane / 16));
#pragma unroll
          for (std::uint32_t& bits : a_fragments[i]) round_operand<T>(bits);
        }
        b.read_fragments(b_stage, col_of_warp, step, lane, b_fragments);
#pragma unroll
        for (int i = 0; i < kRowFragments; ++i)
#pragma unroll
          for (int j = 0; j < kColFragments; ++j)
            multiply_add<T>(sums[i][j], a_fragments[i], b_fragments[j][0], b_fragments[j][1]);
      }
      slot = slot + 1 == kStages ? 0 : slot + 1;
      free_slot = free_slot + 1 == kStages ? 0 : free_slot + 1;
    }
    wait_for_copies<0>();
    __syncthreads();  // every warp is done with the ring

    auto* tile = reinterpret_cast<float*>(ring);
#pragma unroll
    for (int i = 0; i < kRowFragments; ++i)
#pragma unroll
      for (int j = 0; j < kColFragments; ++j) {
        float* at = tile + (row_of_warp + i * 16 + lane / 4) * kPitch + col_of_warp + j * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(at) = make_float2(sums[i][j][0], sums[i][j][1]);
        *reinterpret_cast<float2*>(at + 8 * kPitch) = make_float2(sums[i][j][2], sums[i][j][3]);
      }
    return tile;
  }

 private:
  __device__ static int place(int line, int chunk) { return line * 128 + (chunk ^ (line & 7)) * 16; }

  /// An operand with k along its lines: A's rows, B's columns.
  template <int kLines, class Loader>
  class StageOf {
   public:
    __device__ StageOf(const Loader& loader, std::int64_t line) : loader_(loader), share_(loader, line) {}
    __device__ void copy(std::int64_t k, char* stage) const {
      if (loader_.vectors()) {
        share_.for_each_chunk(k, [&](int i, Source<T> source) {
          copy_async(stage + place(share_.line(i), share_.chunk()), source.data, source.bytes);
        });
        return;
      }
      uint4 chunks[Share::kCount];
      share_.gather(k, chunks);
#pragma unroll
      for (int i = 0; i < Share::kCount; ++i)
        *reinterpret_cast<uint4*>(stage + place(share_.line(i), share_.chunk())) = chunks[i];
    }
    __device__ void read_fragments(const char* stage, int col, int step, int lane,
                                   std::uint32_t (&out)[kColFragments][2]) const {
#pragma unroll
      for (int j = 0; j < kColFragments; j += 2) {
        std::uint32_t four[4];
        load_matrices(four, stage + place(col + j * 8 + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
        out[j][0] = four[0], out[j][1] = four[1], out[j + 1][0] = four[2], out[j + 1][1] = four[3];
        round_operand<T>(out[j][0]), round_operand<T>(out[j][1]);
        round_operand<T>(out[j + 1][0]), round_operand<T>(out[j + 1][1]);
      }
    }

   private:
    using Share = ChunkShare<T, kLines, 8, kThreads, Loader>;
    const Loader& loader_;
    Share share_;
  };

  /// B with n along its lines: kDepth lines of kCols elements; ldmatrix transposes two-byte elements on the
  /// way.
  template <int kLines>
  class StageOf<kLines, AcrossLoader<T>> {
   public:
    __device__ StageOf(const AcrossLoader<T>& loader, std::int64_t line) : loader_(loader), line_(line) {}
    __device__ void copy(std::int64_t k, char* stage) const {
      constexpr int kStep = kThreads / kChunksPerDepth;
      const int chunk = static_cast<int>(threadIdx.x) % kChunksPerDepth;
      const int first = static_cast<int>(threadIdx.x) / kChunksPerDepth;
#pragma unroll
      for (int i = 0; i < kDepth / kStep; ++i) {
        const int depth = first + i * kStep;
        const Source<T> source = loader_.chunk(line_ + chunk * kChunk<T>, k + depth);
        copy_async(stage + place_across(depth, chunk), source.data, source.bytes);
      }
    }
    __device__ void read_fragments(const char* stage, int col, int step, int lane,
                                   std::uint32_t (&out)[kColFragments][2]) const {
      if constexpr (sizeof(T) == 2) {
#pragma unroll
        for (int j = 0; j < kColFragments; j += 2) {
          std::uint32_t four[4];
          load_matrices_transposed(four,
                                   stage + place_across(step * 16 + lane % 16, col / 8 + j + lane / 16));
          out[j][0] = four[0], out[j][1] = four[1], out[j + 1][0] = four[2], out[j + 1][1] = four[3];
        }
      } else {
#pragma unroll
        for (int j = 0; j < kColFragments; ++j)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int at = col + j * 8 + lane / 4;
            out[j][half] = *reinterpret_cast<const std::uint32_t*>(
                stage + place_across(step * 8 + half * 4 + lane % 4, at / 4) + at % 4 * 4);
            round_operand<T>(out[j][half]);
          }
      }
    }

   private:
    static constexpr int kChunksPerDepth = kCols / kChunk<T>;
    __device__ static int place_across(int depth, int chunk) {
      const int swizzle = sizeof(T) == 2 ? depth & 7 : (depth & 3) * 2;
      return (depth * kChunksPerDepth + (chunk ^ swizzle)) * 16;
    }
    const AcrossLoader<T>& loader_;
    std::int64_t line_;
  };
};

}  // namespace burin::gemm
