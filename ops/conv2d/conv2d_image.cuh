#pragma once
// Private: convolutions of small images. A block keeps one image with its padding in shared memory, beside a
// few filters, so that nothing is read twice and no second pass is needed.

#include <burin/ops/gemm/fast_divmod.h>
#include <burin/ops/gemm/tile.cuh>

#include <cstdint>

namespace burin::conv2d_impl {

inline constexpr int kImagePositions = 128;  // of y, at one time
inline constexpr int kImageFilters = 4;      // of a thread
inline constexpr int kImageGroups = 2;       // of filters, in a block
inline constexpr int kImageThreads = kImagePositions * kImageGroups;

struct ImageGeometry {
  int channels, height, width, top, left;
  int padded_width, padded_plane;  // of a channel in shared memory, in elements
  int padded_count;                // of all channels, rounded up to four
  int positions, terms, taps_h, taps_w;
  int stride_h, stride_w, dilation_h, dilation_w;
  std::int64_t filters;
  gemm::FastDivmod by_plane, by_row, by_terms, by_out_row;
};

/// f32, [N, C, H, W], one group. Grid: an image in x, kImageFilters * kImageGroups filters in y. kTaps: 3 for
/// filters of 3 x 3, 0 for any. Shared memory: padded_count + terms * kImageFilters * kImageGroups floats.
template <int kTaps>
__global__ void __launch_bounds__(kImageThreads)
    conv2d_image_kernel(const ImageGeometry g, const float* __restrict__ x, const float* __restrict__ w,
                        const float* __restrict__ bias, const float* __restrict__ residual,
                        float* __restrict__ y, Activation activation) {
  extern __shared__ float4 image_memory[];
  constexpr int kBlockFilters = kImageFilters * kImageGroups;
  auto* image = reinterpret_cast<float*>(image_memory);
  float* filters = image + g.padded_count;  // [terms][kBlockFilters]
  const std::int64_t n = blockIdx.x;
  const std::int64_t first_filter = std::int64_t{blockIdx.y} * kBlockFilters;

  const float* source = x + n * g.channels * g.height * g.width;
#pragma unroll 8
  for (int i = static_cast<int>(threadIdx.x); i < g.channels * g.padded_plane; i += kImageThreads) {
    std::uint32_t in_plane, column;
    const auto channel = static_cast<int>(g.by_plane.divide(static_cast<std::uint32_t>(i), in_plane));
    const int h = static_cast<int>(g.by_row.divide(in_plane, column)) - g.top;
    const int across = static_cast<int>(column) - g.left;
    const bool inside = h >= 0 && h < g.height && across >= 0 && across < g.width;
    image[i] = inside ? source[(channel * g.height + h) * g.width + across] : 0.0f;
  }
#pragma unroll 8
  for (int i = static_cast<int>(threadIdx.x); i < g.terms * kBlockFilters; i += kImageThreads) {
    std::uint32_t term;
    const std::uint32_t filter = g.by_terms.divide(static_cast<std::uint32_t>(i), term);
    filters[term * kBlockFilters + filter] = w[first_filter * g.terms + i];
  }
  __syncthreads();

  const int group = static_cast<int>(threadIdx.x) / kImagePositions;
  const int taps_h = kTaps > 0 ? kTaps : g.taps_h, taps_w = kTaps > 0 ? kTaps : g.taps_w;
  for (int position = static_cast<int>(threadIdx.x) % kImagePositions; position < g.positions;
       position += kImagePositions) {
    std::uint32_t wo;
    const auto ho = static_cast<int>(g.by_out_row.divide(static_cast<std::uint32_t>(position), wo));
    const float* corner = image + ho * g.stride_h * g.padded_width + static_cast<int>(wo) * g.stride_w;
    const auto* weights = reinterpret_cast<const float4*>(filters) + group;
    float sums[kImageFilters] = {};
#pragma unroll 2
    for (int c = 0; c < g.channels; ++c, corner += g.padded_plane) {
#pragma unroll
      for (int r = 0; r < taps_h; ++r) {
#pragma unroll
        for (int s = 0; s < taps_w; ++s, weights += kImageGroups) {
          const float pixel = corner[r * g.dilation_h * g.padded_width + s * g.dilation_w];
          const float4 four = *weights;
          sums[0] = fmaf(pixel, four.x, sums[0]);
          sums[1] = fmaf(pixel, four.y, sums[1]);
          sums[2] = fmaf(pixel, four.z, sums[2]);
          sums[3] = fmaf(pixel, four.w, sums[3]);
        }
      }
    }
    const std::int64_t filter = first_filter + group * kImageFilters;
    const std::int64_t at = (n * g.filters + filter) * g.positions + position;
#pragma unroll
    for (int i = 0; i < kImageFilters; ++i) {
      if (bias) sums[i] += bias[filter + i];
      if (residual) sums[i] += residual[at + std::int64_t{i} * g.positions];
    }
    gemm::activate_all(activation, sums);
#pragma unroll
    for (int i = 0; i < kImageFilters; ++i) y[at + std::int64_t{i} * g.positions] = sums[i];
  }
}

}  // namespace burin::conv2d_impl
