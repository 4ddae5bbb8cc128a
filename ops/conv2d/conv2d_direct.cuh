#pragma once
// Private: convolutions with one input channel a group (depthwise, or a picture of one channel): so few terms
// that tiles would be mostly padding.

#include <burin/ops/conv2d/conv2d_pixels.cuh>
#include <burin/ops/gemm/tile.cuh>
#include <burin/runtime/cuda/launch.cuh>

namespace burin::conv2d_impl {

/// A thread sums kChannels neighbouring output channels at one position. Channels-last, they are neighbours
/// in memory, and kChannels > 1 needs one filter a group and whole aligned chunks. `items` = images * K /
/// kChannels * Ho * Wo, in y's order of memory.
template <class T, bool kChannelsLast, int kChannels>
__global__ void __launch_bounds__(256)
    conv2d_direct_kernel(const PixelGeometry geometry, const T* x, const T* w, const T* bias,
                         const T* residual, T* y, Activation activation, FastDivmod filters_per_group,
                         FastDivmod all_filters, int kernel_height, int kernel_width, std::int64_t filters,
                         std::int64_t items) {
  const std::int64_t item = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  cuda::wait_for_previous();
  if (item >= items) return;
  // A launch has fewer than 2^31 positions, but items may be more.
  std::int64_t filter;
  std::uint32_t position;
  if constexpr (kChannelsLast) {
    const std::int64_t groups_of_channels = filters / kChannels;
    position = static_cast<std::uint32_t>(item / groups_of_channels);
    filter = item % groups_of_channels * kChannels;
  } else if (items <= 0xFFFFFFFF) {
    std::uint32_t in_image, image_filter;
    const std::uint32_t plane = geometry.per_image.divide(static_cast<std::uint32_t>(item), in_image);
    const std::uint32_t image = all_filters.divide(plane, image_filter);
    filter = image_filter;
    position = image * static_cast<std::uint32_t>(geometry.positions_per_image) + in_image;
  } else {
    const std::int64_t image_item = item / (filters * geometry.positions_per_image);
    const std::int64_t rest = item % (filters * geometry.positions_per_image);
    filter = rest / geometry.positions_per_image;
    position = static_cast<std::uint32_t>(image_item * geometry.positions_per_image +
                                          rest % geometry.positions_per_image);
  }
  const std::uint32_t channel = filters_per_group.divide(static_cast<std::uint32_t>(filter));
  const PixelGeometry::Corner corner = geometry.corner(position);
  const T* x_channel = x + corner.offset + channel * geometry.c_stride;
  const T* w_filter = w + filter * kernel_height * kernel_width;  // [K][R][S] in either layout
  struct alignas(sizeof(T) * kChannels) Pack {
    T values[kChannels];
  };

  float sums[kChannels] = {};
  for (int r = 0; r < kernel_height; ++r) {
    const unsigned h = corner.h + static_cast<unsigned>(r) * geometry.dilation_h;
    if (h >= geometry.height) continue;
    for (int s = 0; s < kernel_width; ++s) {
      const unsigned column = corner.w + static_cast<unsigned>(s) * geometry.dilation_w;
      if (column >= geometry.width) continue;
      const Pack pixels =
          *reinterpret_cast<const Pack*>(x_channel + static_cast<std::int64_t>(r) * geometry.tap_h_stride +
                                         static_cast<std::int64_t>(s) * geometry.tap_w_stride);
#pragma unroll
      for (int i = 0; i < kChannels; ++i)
        sums[i] = fmaf(widened(pixels.values[i]),
                       widened(w_filter[(i * kernel_height + r) * kernel_width + s]), sums[i]);
    }
  }

  Pack out;
  Pack more = {};
  if (residual) more = *reinterpret_cast<const Pack*>(residual + item * kChannels);
#pragma unroll
  for (int i = 0; i < kChannels; ++i) {
    if (bias) sums[i] += widened(bias[filter + i]);
    if (residual) sums[i] += widened(more.values[i]);
  }
  gemm::activate_all(activation, sums);
#pragma unroll
  for (int i = 0; i < kChannels; ++i) out.values[i] = narrowed<T>(sums[i]);
  *reinterpret_cast<Pack*>(y + item * kChannels) = out;
}

}  // namespace burin::conv2d_impl
