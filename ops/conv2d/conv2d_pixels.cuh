#pragma once
// Private: the image patches under a convolution's filter, as the lines of a matrix that is never stored.

#include <burin/ops/gemm/tile.cuh>

#include <cstdint>

namespace burin::conv2d_impl {

/// Where the patch of an output position lies in x. A position counts n, ho, wo in that order and stays below
/// 2^31.
struct PixelGeometry {
  std::int64_t n_stride, c_stride, h_stride, w_stride;  // of x, in elements
  std::int64_t tap_h_stride, tap_w_stride;              // from one tap of the filter to the next
  std::int64_t positions_per_image;
  FastDivmod per_image, per_row;  // positions
  unsigned height, width;         // of x
  unsigned stride_h, stride_w, dilation_h, dilation_w, top, left;

  /// The first tap: its row and column, which wrap below 0 so that one comparison finds what lies outside x,
  /// and its offset, which may lie outside x too.
  struct Corner {
    std::int64_t offset;
    unsigned h, w;
  };
  __device__ Corner corner(std::uint32_t position) const {
    std::uint32_t in_image, ho_wo;
    const std::uint32_t n = per_image.divide(position, in_image);
    const std::uint32_t ho = per_row.divide(in_image, ho_wo);
    const unsigned h = ho * stride_h - top, w = ho_wo * stride_w - left;
    return {n * n_stride + static_cast<int>(h) * h_stride + static_cast<int>(w) * w_stride, h, w};
  }
};

/// A loader (gemm/tile.cuh) with a patch a line. k counts r, s, c (channels-last) or c, r, s: the order of
/// the weights. kAligned as for gemm::MatrixLoader.
template <class T, bool kChannelsLast, bool kAligned>
struct PixelLoader {
  /// Above every row of x, also when added to another or to itself.
  static constexpr unsigned kOutside = 1u << 30;

  PixelGeometry geometry;
  const T* x;
  std::int64_t group_stride;
  std::uint32_t lines, k;
  FastDivmod outer_k, taps_per_row;  // k: (r s, c) by C / g, or (c, r s) by R S
  bool aligned_chunks;

  struct Line {
    const T* corner;
    unsigned h, w;
  };
  struct Column {
    std::int64_t offset;
    unsigned h, w;
  };

  __device__ bool vectors() const { return kAligned || (kChannelsLast && aligned_chunks); }
  __device__ bool lines_adjacent() const { return !kChannelsLast; }
  __device__ void select(std::int64_t group) { x += group * group_stride; }
  __device__ Line line(std::int64_t i) const {
    if (i >= lines) return {x, kOutside, kOutside};
    const PixelGeometry::Corner corner = geometry.corner(static_cast<std::uint32_t>(i));
    return {x + corner.offset, corner.h, corner.w};
  }
  __device__ Column column(std::int64_t at) const {
    if (at >= k) return {0, kOutside, kOutside};
    std::uint32_t inner, s;
    const std::uint32_t outer = outer_k.divide(static_cast<std::uint32_t>(at), inner);
    const std::uint32_t tap = kChannelsLast ? outer : inner;
    const std::uint32_t channel = kChannelsLast ? inner : outer;
    const std::uint32_t r = taps_per_row.divide(tap, s);
    return {r * geometry.tap_h_stride + s * geometry.tap_w_stride + channel * geometry.c_stride,
            r * geometry.dilation_h, s * geometry.dilation_w};
  }
  __device__ const T* element(const Line& line, const Column& column) const {
    const bool inside = line.h + column.h < geometry.height && line.w + column.w < geometry.width;
    return inside ? line.corner + column.offset : nullptr;
  }
  __device__ gemm::Source<T> chunk(const Line& line, const Column& column) const {
    const T* data = element(line, column);
    return data ? gemm::Source<T>{data, 16} : gemm::Source<T>{x, 0};
  }
};

}  // namespace burin::conv2d_impl
