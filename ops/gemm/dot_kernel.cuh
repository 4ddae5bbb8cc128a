#pragma once
// Private: a product so narrow that it is a handful of dot products: a warp for each few of them, or a block
// for one.

#include <burin/ops/gemm/tile.cuh>
#include <burin/runtime/cuda/launch.cuh>

namespace burin::gemm {

inline constexpr int kBlockDotThreads = 256;

/// One thread's part of kRows dot products with the same line of B: the chunks first, first + stride, ... of
/// k, or its elements where the lines are not aligned.
template <class T, int kRows>
__device__ inline void sum_products(const T* const (&a_lines)[kRows], const T* b_line, std::int64_t k,
                                    bool vectors, int first, int stride, float (&sums)[kRows]) {
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
    for (std::int64_t i = first * kChunk<T>; i < at; i += stride * kChunk<T>) {
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
  for (std::int64_t i = at + first; i < k; i += stride) {
    const float b_value = widened(b_line[i]);
#pragma unroll
    for (int r = 0; r < kRows; ++r) sums[r] = fmaf(widened(a_lines[r][i]), b_value, sums[r]);
  }
}

/// The sum over a warp, in every lane.
__device__ inline float sum_of_warp(float sum) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
  return sum;
}

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
  cuda::wait_for_previous();
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
    sum_products<T>(a_lines, b_line, k, vectors, lane, 32, sums);
    Output<T> entry_out = out;
    entry_out.select(entry);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float sum = sum_of_warp(sums[r]);
      if (lane == r) entry_out.store_one(row + r, col, sum);
    }
  }
}

/// The same with a block for each dot product: for so few that a warp's turns would be most of the time. The
/// grid is cols x rows x batch.
template <class T>
__global__ void __launch_bounds__(kBlockDotThreads)
    block_dot_kernel(const T* a, const T* b, std::int64_t a_pitch, std::int64_t b_pitch,
                     std::int64_t a_batch_stride, std::int64_t b_batch_stride, std::int64_t k, bool vectors,
                     Output<T> out) {
  constexpr int kWarps = kBlockDotThreads / 32;
  __shared__ float parts[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t col = blockIdx.x, row = blockIdx.y, entry = blockIdx.z;
  const T* const a_lines[1] = {a + entry * a_batch_stride + row * a_pitch};
  float sums[1] = {};
  cuda::wait_for_previous();
  sum_products<T>(a_lines, b + entry * b_batch_stride + col * b_pitch, k, vectors, thread, kBlockDotThreads,
                  sums);
  const float part = sum_of_warp(sums[0]);
  if (thread % 32 == 0) parts[thread / 32] = part;
  __syncthreads();
  if (thread != 0) return;
  float sum = 0;
#pragma unroll
  for (float each : parts) sum += each;
  out.select(entry);
  out.store_one(row, col, sum);
}

}  // namespace burin::gemm
