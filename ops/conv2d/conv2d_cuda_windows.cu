// What bounds so small a launch is neither arithmetic nor bandwidth but the instructions that a thread runs
// one after the other: there are too few warps to fill their latencies. So the grid and the block have an
// axis for all that would otherwise be divided, everything is read at once, and as many threads as the sums
// allow share the work.

#include <burin/ops/common/fast_divmod.h>
#include <burin/ops/conv2d/conv2d_cuda_windows.h>
#include <burin/ops/gemm/tile.cuh>
#include <burin/runtime/cuda/launch.cuh>
#include <burin/runtime/divide_up.h>

#include <algorithm>
#include <array>

#include <cuda_pipeline.h>

namespace burin::conv2d_impl {
namespace {

constexpr int kExtent = 3;  // of a filter
constexpr int kTaps = kExtent * kExtent;
constexpr int kRows = 4;     // of y, that a thread sums in its column
constexpr int kFilters = 4;  // for which it does
constexpr int kSums = kRows * kFilters;
constexpr int kPatchRows = kRows + kExtent - 1;
constexpr int kMostThreads = 384, kSmallBlockThreads = 224;
constexpr std::size_t kMostSharedBytes = 64 * 1024;  // three blocks a multiprocessor
/// Measured: with more products than this for each multiprocessor, tiles win, unless the sums are short.
constexpr std::int64_t kMostProducts = 1 << 20;
constexpr std::int64_t kShortSum = 36;
constexpr std::int64_t kMostBlockZ = 64;
constexpr std::int64_t kMostGridYZ = 65535;

struct Geometry {
  int channels, height, width;  // of a group of x
  int groups, filters;          // of w
  int out_height, out_width, top, left;
  int filter_pitch;            // of kFilters filters in shared memory
  int patch_columns, patch;    // of one channel of x, with its padding: kPatchRows rows
  int channel_step;            // channels that the block copies at once
  bool aligned;                // w, to 16 bytes
  FastDivmod by_group_blocks;  // blocks along grid.x to a group
  FastDivmod by_patch, by_patch_columns;
};

/// A thread's place in the block, and what belongs to it. Grid: filters, kRows rows each, images. Block:
/// columns of y, kFilters filters each, splits of the channels, so that a warp reads the same few elements of
/// x and w.
struct Place {
  int columns = static_cast<int>(blockDim.x), column = static_cast<int>(threadIdx.x);
  int filter_groups = static_cast<int>(blockDim.y), filter_group = static_cast<int>(threadIdx.y);
  int splits = static_cast<int>(blockDim.z), split = static_cast<int>(threadIdx.z);
  int first_filter = (static_cast<int>(blockIdx.x) * filter_groups + filter_group) * kFilters;
  int first_row = static_cast<int>(blockIdx.y) * kRows;
  std::int64_t image = blockIdx.z;
  float *biases, *filters, *patch;  // shared memory: of the thread's filters, and of the block
  float* partial;                   // the partial sums of its column and filters

  /// Shared memory holds the bias, the filters [filter groups][filter_pitch] and the patch
  /// [channels][kPatchRows] [patch_columns]; later the partial sums [filter groups][splits][kSums][columns]
  /// in place of the last two.
  __device__ Place(const Geometry& g, float* shared) {
    float* const block_filters = shared + filter_groups * kFilters;
    biases = shared + filter_group * kFilters;
    filters = block_filters + filter_group * g.filter_pitch;
    patch = block_filters + filter_groups * g.filter_pitch;
    partial = block_filters + filter_group * splits * kSums * columns + column;
  }
};

/// Starts copying the filters of the thread's group, which the threads of that group share.
__device__ inline void copy_filters(const Geometry& g, const Place& at, const float* w, const float* bias) {
  const int count = kFilters * kTaps * g.channels;
  const float* const from = w + static_cast<std::int64_t>(at.first_filter) * g.channels * kTaps;
  const int thread = at.column + at.columns * at.split, threads = at.columns * at.splits;
  if (g.aligned)
    for (int i = 4 * thread; i < count; i += 4 * threads)
      __pipeline_memcpy_async(at.filters + i, from + i, 4 * sizeof(float));
  else
    for (int i = thread; i < count; i += threads)
      __pipeline_memcpy_async(at.filters + i, from + i, sizeof(float));
  if (bias)
    for (int i = thread; i < kFilters; i += threads)
      __pipeline_memcpy_async(at.biases + i, bias + at.first_filter + i, sizeof(float));
}

/// Starts copying the block's patch of x. A thread copies the same element of every channel, or of every few
/// where the block is larger than a channel's patch.
__device__ inline void copy_patch(const Geometry& g, const Place& at, const float* x) {
  const std::int64_t plane = static_cast<std::int64_t>(g.height) * g.width;
  const std::int64_t group = at.image * g.groups + g.by_group_blocks.divide(blockIdx.x);
  const int thread = at.column + at.columns * (at.filter_group + at.filter_groups * at.split);
  const int threads = at.columns * at.filter_groups * at.splits;
  for (int item = thread; item < g.channel_step * g.patch; item += threads) {
    std::uint32_t element, patch_column;
    const auto first = static_cast<int>(g.by_patch.divide(static_cast<std::uint32_t>(item), element));
    const auto patch_row = static_cast<int>(g.by_patch_columns.divide(element, patch_column));
    const int h = at.first_row + patch_row - g.top, v = static_cast<int>(patch_column) - g.left;
    float* to = at.patch + first * g.patch + element;
    if (h >= 0 && h < g.height && v >= 0 && v < g.width) {
      const float* from =
          x + (group * g.channels + first) * plane + static_cast<std::int64_t>(h) * g.width + v;
#pragma unroll 4
      for (int c = first; c < g.channels; c += g.channel_step) {
        __pipeline_memcpy_async(to, from, sizeof(float));
        from += g.channel_step * plane;
        to += g.channel_step * g.patch;
      }
    } else {
      for (int c = first; c < g.channels; c += g.channel_step, to += g.channel_step * g.patch) *to = 0.0f;
    }
  }
}

/// Adds the products of channels c, c + 1, ... below c + kChannels to the thread's sums, [kFilters][kRows].
template <int kChannels>
__device__ inline void add_products(const Geometry& g, const Place& at, int c, float (&sums)[kSums]) {
  float pixels[kChannels][kPatchRows][kExtent];
#pragma unroll
  for (int i = 0; i < kChannels; ++i)
#pragma unroll
    for (int r = 0; r < kPatchRows; ++r)
#pragma unroll
      for (int s = 0; s < kExtent; ++s)
        pixels[i][r][s] = at.patch[(c + i) * g.patch + r * g.patch_columns + at.column + s];
#pragma unroll
  for (int f = 0; f < kFilters; ++f) {
    struct alignas(sizeof(float) * kChannels) Pack {
      float values[kChannels];
    };
    Pack taps[kTaps];  // [kChannels][kExtent][kExtent]
    const float* const from = at.filters + (f * g.channels + c) * kTaps;
#pragma unroll
    for (int i = 0; i < kTaps; ++i) taps[i] = reinterpret_cast<const Pack*>(from)[i];
#pragma unroll
    for (int i = 0; i < kChannels; ++i)
#pragma unroll
      for (int tap = 0; tap < kTaps; ++tap) {
        const float weight = taps[(i * kTaps + tap) / kChannels].values[(i * kTaps + tap) % kChannels];
#pragma unroll
        for (int row = 0; row < kRows; ++row)
          sums[f * kRows + row] =
              fmaf(pixels[i][row + tap / kExtent][tap % kExtent], weight, sums[f * kRows + row]);
      }
  }
}

/// Where the thread's sums go: sum i is of filter i / kRows and row i % kRows.
struct Destination {
  std::int64_t corner, plane;
  int width, rows;  // rows: that lie in y

  __device__ Destination(const Geometry& g, const Place& at)
      : plane(static_cast<std::int64_t>(g.out_height) * g.out_width),
        width(g.out_width),
        rows(min(kRows, g.out_height - at.first_row)) {
    corner =
        (at.image * g.filters + at.first_filter) * plane + at.first_row * std::int64_t{width} + at.column;
  }
  __device__ bool has(int i) const { return i % kRows < rows; }
  __device__ std::int64_t offset(int i) const { return corner + i / kRows * plane + i % kRows * width; }
};

/// A thread takes kChannels channels at a time.
template <int kChannels>
__global__ void __launch_bounds__(kMostThreads)
    conv2d_windows_kernel(const Geometry g, const float* x, const float* w, const float* bias,
                          const float* residual, float* y, Activation activation) {
  extern __shared__ float4 shared[];
  const Place at(g, reinterpret_cast<float*>(shared));
  cuda::wait_for_previous();
  copy_filters(g, at, w, bias);
  copy_patch(g, at, x);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();

  float sums[kSums] = {};
#pragma unroll 1
  for (int c = at.split * kChannels; c < g.channels; c += at.splits * kChannels)
    add_products<kChannels>(g, at, c, sums);

  const Destination to(g, at);
  if (at.splits == 1) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      if (bias) sums[i] += at.biases[i / kRows];
      if (residual && to.has(i)) sums[i] += residual[to.offset(i)];
    }
    gemm::activate_all(activation, sums);
#pragma unroll
    for (int i = 0; i < kSums; ++i)
      if (to.has(i)) y[to.offset(i)] = sums[i];
    return;
  }

  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSums; ++i) at.partial[(at.split * kSums + i) * at.columns] = sums[i];
  __syncthreads();
  for (int i = at.split; i < kSums; i += at.splits) {
    if (!to.has(i)) continue;
    float sum = 0.0f;
#pragma unroll 8
    for (int part = 0; part < at.splits; ++part) sum += at.partial[(part * kSums + i) * at.columns];
    if (bias) sum += at.biases[i / kRows];
    if (residual) sum += residual[to.offset(i)];
    y[to.offset(i)] = activate(activation, sum);
  }
}

/// Channels that a thread takes at a time: enough to read their filters by vectors.
int channels_at_once(const Problem& p) { return p.w[1] % 4 == 0 ? 4 : 1; }

/// Of kFilters filters in shared memory: neighbours lie in other banks.
std::int64_t filter_pitch(const Problem& p) { return kFilters * (p.w[1] * kTaps + 1); }

Geometry make_geometry(const WindowsPlan& plan, const Problem& p, bool aligned) {
  // windows_plan and cuda_prepare have checked that they fit.
  const auto narrow = [](std::int64_t extent) { return static_cast<int>(extent); };
  const auto divide_by = [](std::int64_t divisor) { return FastDivmod(static_cast<std::uint32_t>(divisor)); };
  Geometry g = {};
  g.channels = narrow(p.w[1]);
  g.height = narrow(p.x[2]);
  g.width = narrow(p.x[3]);
  g.groups = narrow(p.params.groups);
  g.filters = narrow(p.w[0]);
  g.out_height = narrow(p.y[2]);
  g.out_width = narrow(p.y[3]);
  g.top = narrow(p.params.padding.top);
  g.left = narrow(p.params.padding.left);
  g.filter_pitch = narrow(filter_pitch(p));
  g.patch_columns = g.out_width + kExtent - 1;
  g.patch = kPatchRows * g.patch_columns;
  g.channel_step = std::clamp(g.out_width * plan.splits * plan.filter_groups / g.patch, 1, g.channels);
  g.aligned = aligned;
  g.by_group_blocks = divide_by(g.filters / g.groups / (kFilters * plan.filter_groups));
  g.by_patch = divide_by(g.patch);
  g.by_patch_columns = divide_by(g.patch_columns);
  return g;
}

}  // namespace

std::optional<WindowsPlan> windows_plan(const Problem& p, int multiprocessors) {
  const std::int64_t channels = p.w[1], out_width = p.y[3];
  const std::int64_t group_filters = p.w[0] / p.params.groups;
  const std::array<std::int64_t, 2> once{1, 1};
  if (p.dtype != DType::f32 || p.layout != Layout::contiguous || p.w[2] != kExtent || p.w[3] != kExtent ||
      p.params.stride != once || p.params.dilation != once || group_filters % kFilters != 0 ||
      out_width > kMostThreads || channels < 1 || divide_up(p.y[2], kRows) > kMostGridYZ)
    return std::nullopt;
  if (channels * kTaps > kShortSum && p.y.count() > kMostProducts * multiprocessors / (channels * kTaps))
    return std::nullopt;

  const std::int64_t turns = channels / channels_at_once(p);  // of a single thread
  const std::int64_t turns_each = divide_up(turns, std::min({kMostThreads / out_width, turns, kMostBlockZ}));
  const std::int64_t splits = divide_up(turns, turns_each);
  // As many filters as a large block holds if that leaves each multiprocessor one, else as a small block
  // does.
  const std::int64_t all_groups = group_filters / kFilters;
  const std::int64_t tiles = p.x[0] * divide_up(p.y[2], kRows) * p.params.groups;
  const std::int64_t group_threads = out_width * splits;
  std::int64_t filter_groups = std::min(kMostThreads / group_threads, all_groups);
  while (filter_groups > 1 && (all_groups % filter_groups != 0 ||
                               (filter_groups * group_threads > kSmallBlockThreads &&
                                tiles * (all_groups / filter_groups) < multiprocessors * 7 / 8)))
    --filter_groups;
  const std::int64_t patch = kPatchRows * (out_width + kExtent - 1);
  constexpr auto kMostFloats = static_cast<std::int64_t>(kMostSharedBytes / sizeof(float));
  if (channels > kMostFloats) return std::nullopt;
  const std::int64_t floats =
      filter_groups * kFilters + std::max(filter_groups * filter_pitch(p) + channels * patch,
                                          filter_groups * splits * kSums * out_width);
  if (floats > kMostFloats) return std::nullopt;
  return WindowsPlan{static_cast<int>(splits), static_cast<int>(filter_groups),
                     static_cast<std::size_t>(floats) * sizeof(float)};
}

void windows_run(const WindowsPlan& plan, const Problem& p, StreamView stream, const Operands& operands) {
  const Geometry g = make_geometry(plan, p, cuda::is_aligned(operands.w));
  const auto run = [&]<int kChannels>(std::int64_t first, std::int64_t images) {
    const std::int64_t x_offset = first * (p.x.count() / p.x[0]), y_offset = first * (p.y.count() / p.y[0]);
    const auto* residual = static_cast<const float*>(operands.residual);
    const auto extent = [](std::int64_t count) { return static_cast<unsigned>(count); };
    cuda::launch("conv2d", conv2d_windows_kernel<kChannels>,
                 {.grid = dim3(extent(g.filters / (kFilters * plan.filter_groups)),
                               extent(divide_up(g.out_height, kRows)), extent(images)),
                  .block = dim3(extent(g.out_width), extent(plan.filter_groups), extent(plan.splits)),
                  .shared_bytes = plan.shared_bytes,
                  .starts_early = true},
                 stream, g, static_cast<const float*>(operands.x) + x_offset,
                 static_cast<const float*>(operands.w), static_cast<const float*>(operands.bias),
                 residual ? residual + y_offset : nullptr, static_cast<float*>(operands.y) + y_offset,
                 p.params.activation);
  };
  for (std::int64_t n = 0; n < p.x[0]; n += kMostGridYZ) {
    const std::int64_t images = std::min(kMostGridYZ, p.x[0] - n);
    if (channels_at_once(p) == 4)
      run.template operator()<4>(n, images);
    else
      run.template operator()<1>(n, images);
  }
}

}  // namespace burin::conv2d_impl
