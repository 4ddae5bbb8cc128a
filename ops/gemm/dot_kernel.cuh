#pragma once
// Private: a product so narrow that it is a handful of dot products: a warp for each few of them.

#include <burin/ops/gemm/tile.cuh>

namespace burin::gemm {

/// A is [rows][k], B is [cols][k]. A warp sums kRows rows of one column; the four warps of a block take
/// neighbouring columns of the same rows. Blocks beyond the grid are walked to.
template <class T, int kRows>
__global__ void __launch_bounds__(128)
    dot_kernel(const T* a, const T* b, std::int64_t a_pitch, std::int64_t b_pitch,
               std::int64_t a_batch_stride, std::int64_t b_batch_stride, std::int64_t k, std::int64_t batch,
               bool vectors, Output<T> out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t warps = std::int64_t{gridDim.x} * 4;
  const std::int64_t row_groups = (out.rows - 1) / kRows + 1;
  for (std::int64_t warp = std::int64_t{blockIdx.x} * 4 + threadIdx.x / 32;
       warp < batch * row_groups * out.cols; warp += warps) {
    const std::int64_t col = warp % out.cols;
    const std::int64_t group = warp / out.cols;
    const std::int64_t row = group % row_groups * kRows;
    const std::int64_t entry = group / row_groups;
    const T* b_line = b + entry * b_batch_stride + col * b_pitch;
    const T* a_lines[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {  // rows past the end repeat the last, and are not stored
      const std::int64_t at = row + i < out.rows ? row + i : out.rows - 1;
      a_lines[i] = a + entry * a_batch_stride + at * a_pitch;
    }

    float sums[kRows] = {};
    std::int64_t at = 0;
    if (vectors) {
      struct alignas(16) Pack {
        T values[kChunk<T>];
      };
      const auto load = [](const T* data) {
        return __builtin_bit_cast(Pack, __ldg(reinterpret_cast<const uint4*>(data)));
      };
      at = k / kChunk<T> * kChunk<T>;
#pragma unroll 4
      for (std::int64_t i = lane * kChunk<T>; i < at; i += 32 * kChunk<T>) {
        const Pack b_pack = load(b_line + i);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const Pack a_pack = load(a_lines[r] + i);
#pragma unroll
          for (int j = 0; j < kChunk<T>; ++j)
            sums[r] = fmaf(widened(a_pack.values[j]), widened(b_pack.values[j]), sums[r]);
        }
      }
    }
#pragma unroll 4
    for (std::int64_t i = at + lane; i < k; i += 32) {
      const float b_value = widened(b_line[i]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r] = fmaf(widened(a_lines[r][i]), b_value, sums[r]);
    }

    Output<T> entry_out = out;
    entry_out.select(entry);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2)
        sums[r] += __shfl_xor_sync(0xFFFFFFFFu, sums[r], distance);
      if (lane == r) entry_out.store_one(row + r, col, sums[r]);
    }
  }
}

}  // namespace burin::gemm
