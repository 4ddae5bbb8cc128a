#include <burin/ops/conv2d/conv2d_cuda.h>
#include <burin/ops/conv2d/conv2d_direct.cuh>
#include <burin/ops/conv2d/conv2d_pixels.cuh>
#include <burin/ops/gemm/tile_kernel.cuh>
#include <burin/runtime/dispatch.h>
#include <burin/runtime/error.h>

#include <algorithm>
#include <string>

namespace burin::conv2d_impl {
namespace {

constexpr const char* kOp = "conv2d";
constexpr std::int64_t kMostPositions = 0x7FFFFFFF;
constexpr std::int64_t kMostExtent = 1 << 30;
constexpr std::int64_t kMostDirectTaps = 25;

using gemm::kChunk;

/// The sizes of a problem by their usual letters.
struct Sizes {
  std::int64_t N, C, H, W, K, R, S, Ho, Wo, groups;
  explicit Sizes(const Problem& p)
      : N(p.x[0]),
        C(p.x[1]),
        H(p.x[2]),
        W(p.x[3]),
        K(p.y[1]),
        R(p.w[2]),
        S(p.w[3]),
        Ho(p.y[2]),
        Wo(p.y[3]),
        groups(p.params.groups) {}
  std::int64_t group_channels() const { return C / groups; }
  std::int64_t group_filters() const { return K / groups; }
  std::int64_t terms() const { return group_channels() * R * S; }
  std::int64_t image_positions() const { return Ho * Wo; }
};

FastDivmod divide_by(std::int64_t divisor) {
  return FastDivmod(static_cast<std::uint32_t>(std::max<std::int64_t>(divisor, 1)));
}
/// cuda_prepare has checked that it fits.
unsigned narrow_extent(std::int64_t extent) { return static_cast<unsigned>(extent); }

PixelGeometry make_geometry(const Problem& p) {
  const Sizes z(p);
  const bool last = p.layout == Layout::channels_last;
  PixelGeometry g = {};
  g.n_stride = z.C * z.H * z.W;
  g.c_stride = last ? 1 : z.H * z.W;
  g.h_stride = last ? z.W * z.C : z.W;
  g.w_stride = last ? z.C : 1;
  g.tap_h_stride = p.params.dilation[0] * g.h_stride;
  g.tap_w_stride = p.params.dilation[1] * g.w_stride;
  g.positions_per_image = z.image_positions();
  g.per_image = divide_by(z.image_positions());
  g.per_row = divide_by(z.Wo);
  g.height = narrow_extent(z.H);
  g.width = narrow_extent(z.W);
  g.stride_h = narrow_extent(p.params.stride[0]);
  g.stride_w = narrow_extent(p.params.stride[1]);
  g.dilation_h = narrow_extent(p.params.dilation[0]);
  g.dilation_w = narrow_extent(p.params.dilation[1]);
  g.top = narrow_extent(p.params.padding.top);
  g.left = narrow_extent(p.params.padding.left);
  return g;
}

/// A part of the batch, small enough for 32-bit positions.
template <class T>
struct Slice {
  std::int64_t images;
  const T* x;
  const T* w;
  const T* bias;
  const T* residual;
  T* y;
};

/// Whether 16 bytes along k are neighbours in x and in w: the pointers must be aligned too.
template <class T>
bool chunks_along_k(const Problem& p) {
  const Sizes z(p);
  return p.layout == Layout::channels_last && z.group_channels() % kChunk<T> == 0;
}

template <class T, bool kChannelsLast, bool kAligned>
PixelLoader<T, kChannelsLast, kAligned> pixel_loader(const Problem& p, const Slice<T>& slice) {
  const Sizes z(p);
  PixelLoader<T, kChannelsLast, kAligned> loader = {};
  loader.geometry = make_geometry(p);
  loader.x = slice.x;
  loader.group_stride = z.group_channels() * loader.geometry.c_stride;
  loader.lines = static_cast<std::uint32_t>(slice.images * z.image_positions());
  loader.k = static_cast<std::uint32_t>(z.terms());
  loader.outer_k = divide_by(kChannelsLast ? z.group_channels() : z.R * z.S);
  loader.taps_per_row = divide_by(z.S);
  loader.aligned_chunks = chunks_along_k<T>(p) && cuda::is_aligned(slice.x);
  return loader;
}

template <class T, bool kAligned>
gemm::MatrixLoader<T, kAligned> filter_loader(const Problem& p, const T* w) {
  const Sizes z(p);
  const std::int64_t terms = z.terms();
  return {w,
          terms,
          1,
          z.group_filters() * terms,
          z.group_filters(),
          terms,
          terms % kChunk<T> == 0 && cuda::is_aligned(w),
          false};
}

template <class T>
gemm::Output<T> make_output(const Problem& p, const Slice<T>& slice) {
  const Sizes z(p);
  const std::int64_t positions = slice.images * z.image_positions();
  gemm::Output<T> out = {};
  out.y = slice.y;
  out.residual = slice.residual;
  out.bias = slice.bias;
  out.activation = p.params.activation;
  out.bias_batch_stride = z.group_filters();
  if (p.layout == Layout::channels_last) {
    out.rows = positions;
    out.cols = z.group_filters();
    out.row_stride = z.K;
    out.batch_stride = z.group_filters();
    out.vectors = z.K % kChunk<T> == 0 && z.group_filters() % kChunk<T> == 0;
  } else {
    out.rows = z.group_filters();
    out.cols = positions;
    out.row_stride = z.image_positions();
    out.batch_stride = z.group_filters() * z.image_positions();
    out.bias_along_rows = true;
    out.plane_columns = divide_by(z.image_positions());
    out.plane_jump = (z.K - 1) * z.image_positions();
    out.vectors = z.image_positions() % kChunk<T> == 0;
  }
  out.vectors = out.vectors && cuda::is_aligned(out.y) && cuda::is_aligned(out.residual) &&
                (out.bias_along_rows || cuda::is_aligned(out.bias));
  return out;
}

template <class Tile, bool kChannelsLast, bool kAligned, class T>
void run_tile(const CudaPlan& plan, StreamView stream, const Slice<T>& slice, void* workspace) {
  const Problem& p = plan.problem;
  const auto pixels = pixel_loader<T, kChannelsLast, kAligned>(p, slice);
  const auto filters = filter_loader<T, kAligned>(p, slice.w);
  const auto out = make_output(p, slice);
  // Blocks that run at the same time share pixels, which are many, and read all filters, which are few.
  if constexpr (kChannelsLast)
    gemm::launch_tiles<Tile>(kOp, stream, pixels, filters, out, filters.k, p.params.groups, plan.tile.splits,
                             false, workspace);
  else
    gemm::launch_tiles<Tile>(kOp, stream, filters, pixels, out, filters.k, p.params.groups, plan.tile.splits,
                             true, workspace);
}

template <class T, bool kChannelsLast>
void run_tiles(const CudaPlan& plan, StreamView stream, const Slice<T>& slice, void* workspace) {
  const Problem& p = plan.problem;
  if constexpr (std::is_same_v<T, float>) {
    if (!p.allow_tf32) switch (plan.tile.tile) {
        case 0: return run_tile<gemm::FmaLarge, kChannelsLast, false>(plan, stream, slice, workspace);
        case 1: return run_tile<gemm::FmaMedium, kChannelsLast, false>(plan, stream, slice, workspace);
        default: return run_tile<gemm::FmaSmall, kChannelsLast, false>(plan, stream, slice, workspace);
      }
  }
  if constexpr (kChannelsLast) {
    if (chunks_along_k<T>(p) && cuda::is_aligned(slice.x) && cuda::is_aligned(slice.w))
      switch (plan.tile.tile) {
        case 0: return run_tile<gemm::MmaLarge<T>, true, true>(plan, stream, slice, workspace);
        case 1: return run_tile<gemm::MmaTall<T>, true, true>(plan, stream, slice, workspace);
        default: return run_tile<gemm::MmaSmall<T>, true, true>(plan, stream, slice, workspace);
      }
  }
  run_tile<gemm::MmaSmall<T>, kChannelsLast, false>(plan, stream, slice, workspace);
}

template <class T, bool kChannelsLast>
void run_direct(const Problem& p, StreamView stream, const Slice<T>& slice) {
  const Sizes z(p);
  const PixelGeometry geometry = make_geometry(p);
  const auto run = [&]<int kChannels>() {
    const std::int64_t items = slice.images * z.image_positions() * z.K / kChannels;
    cuda::launch(kOp, conv2d_direct_kernel<T, kChannelsLast, kChannels>,
                 {.grid = dim3(cuda::blocks_for(kOp, items, 256)), .block = dim3(256), .starts_early = true},
                 stream, geometry, slice.x, slice.w, slice.bias, slice.residual, slice.y, p.params.activation,
                 divide_by(z.group_filters()), divide_by(z.K), static_cast<int>(z.R), static_cast<int>(z.S),
                 z.K, items);
  };
  if constexpr (kChannelsLast) {
    constexpr int kMost = kChunk < T >> 4 ? 4 : kChunk<T>;
    if (z.group_filters() == 1 && z.C % kMost == 0 && cuda::is_aligned(slice.x) &&
        cuda::is_aligned(slice.y) && cuda::is_aligned(slice.residual))
      return run.template operator()<kMost>();
  }
  run.template operator()<1>();
}

template <class T>
void run_typed(const CudaPlan& plan, StreamView stream, const Operands& operands, void* workspace) {
  const Problem& p = plan.problem;
  const Sizes z(p);
  for (std::int64_t n = 0; n < z.N; n += plan.images_per_launch) {
    const std::int64_t x_offset = n * z.C * z.H * z.W, y_offset = n * z.K * z.image_positions();
    const auto* residual = static_cast<const T*>(operands.residual);
    const Slice<T> slice = {
        std::min(plan.images_per_launch, z.N - n), static_cast<const T*>(operands.x) + x_offset,
        static_cast<const T*>(operands.w),         static_cast<const T*>(operands.bias),
        residual ? residual + y_offset : nullptr,  static_cast<T*>(operands.y) + y_offset};
    const bool direct = plan.way == CudaPlan::Way::direct;
    if (p.layout == Layout::channels_last)
      direct ? run_direct<T, true>(p, stream, slice) : run_tiles<T, true>(plan, stream, slice, workspace);
    else
      direct ? run_direct<T, false>(p, stream, slice) : run_tiles<T, false>(plan, stream, slice, workspace);
  }
}

}  // namespace

CudaPlan cuda_prepare(const Problem& p, int multiprocessors) {
  const Sizes z(p);
  const auto& [top, left, bottom, right] = p.params.padding;
  const std::int64_t largest_extent =
      std::max({z.H + top + bottom, z.W + left + right, p.params.stride[0], p.params.stride[1]});
  if (z.image_positions() > kMostPositions || z.terms() > kMostPositions || largest_extent >= kMostExtent)
    throw UnsupportedError(
        "conv2d: the CUDA kernel takes images of y of at most 2147483647 positions (given " +
        std::to_string(z.image_positions()) + "), as many terms a sum (" + std::to_string(z.terms()) +
        "), and padded extents and strides below 1073741824 (" + std::to_string(largest_extent) + ")");

  CudaPlan plan;
  plan.problem = p;
  if (const std::optional<WindowsPlan> windows = windows_plan(p, multiprocessors)) {
    plan.way = CudaPlan::Way::windows;
    plan.windows = *windows;
    return plan;
  }
  plan.images_per_launch = std::min(z.N, kMostPositions / z.image_positions());
  const std::int64_t positions = plan.images_per_launch * z.image_positions();
  if (z.group_channels() == 1 && (z.group_filters() < 32 || z.R * z.S <= kMostDirectTaps)) {
    plan.way = CudaPlan::Way::direct;
    return plan;
  }
  const bool last = p.layout == Layout::channels_last;
  const bool chunks = p.dtype == DType::f32 ? chunks_along_k<float>(p) : chunks_along_k<f16>(p);
  plan.tile = gemm::choose_tile(
      gemm::tiles_for(p.dtype, p.allow_tf32, chunks),
      {last ? positions : z.group_filters(), last ? z.group_filters() : positions, z.terms(), z.groups},
      multiprocessors, true);
  plan.workspace_bytes = plan.tile.workspace_bytes;
  return plan;
}

void cuda_run(const CudaPlan& plan, StreamView stream, const Operands& operands, void* workspace) {
  if (plan.way == CudaPlan::Way::windows) return windows_run(plan.windows, plan.problem, stream, operands);
  with_float_dtype(plan.problem.dtype, kOp,
                   [&]<class T>() { run_typed<T>(plan, stream, operands, workspace); });
}

}  // namespace burin::conv2d_impl
