#include <burin/ops/avg_pool2d/avg_pool2d_impl.h>
#include <burin/ops/common/pool2d.cuh>
#include <burin/runtime/dispatch.h>

namespace burin::avg_pool2d_impl {
namespace {

constexpr int kLanes = 32;     // pixel i of a plane is added to sum i % kLanes, in both layouts
constexpr int kPlanes = 8;     // planes of a block, contiguous
constexpr int kChannels = 32;  // planes of a block, channels-last

struct Mean {
  bool count_include_pad;
  __device__ float init() const { return 0.0f; }
  __device__ float operator()(float sum, float value) const { return sum + value; }
  template <class Index>
  __device__ float finish(float sum, const Pool2d<Index>& p, Index oh, Index ow) const {
    return sum / (window_count(p.h, oh, count_include_pad) * window_count(p.w, ow, count_include_pad));
  }
};

/// One warp a plane.
template <class T>
__global__ void __launch_bounds__(kLanes* kPlanes)
    global_avg_pool2d_warp_plane_kernel(T* __restrict__ y, const T* __restrict__ x, std::int64_t planes,
                                        std::int64_t pixels) {
  const std::int64_t plane = static_cast<std::int64_t>(blockIdx.x) * kPlanes + threadIdx.y;
  burin::cuda::wait_for_previous();
  if (plane >= planes) return;
  float sum = 0.0f;
  for (std::int64_t i = threadIdx.x; i < pixels; i += kLanes) sum += widened(x[plane * pixels + i]);
  for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_down_sync(0xFFFFFFFFu, sum, step);
  if (threadIdx.x == 0) y[plane] = narrowed<T>(sum / static_cast<float>(pixels));
}

/// One block for kChannels neighbouring channels of an image: x along channels, y along pixels.
template <class T>
__global__ void __launch_bounds__(kLanes* kChannels)
    global_avg_pool2d_channels_kernel(T* __restrict__ y, const T* __restrict__ x, std::int64_t channels,
                                      std::int64_t blocks, std::int64_t pixels) {
  __shared__ float sums[kLanes][kChannels];
  const std::int64_t n = blockIdx.x / blocks;
  const std::int64_t c = blockIdx.x % blocks * kChannels + threadIdx.x;
  float sum = 0.0f;
  burin::cuda::wait_for_previous();
  if (c < channels)
    for (std::int64_t i = threadIdx.y; i < pixels; i += kLanes)
      sum += widened(x[(n * pixels + i) * channels + c]);
  sums[threadIdx.y][threadIdx.x] = sum;
  for (int step = kLanes / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.y < step) sums[threadIdx.y][threadIdx.x] += sums[threadIdx.y + step][threadIdx.x];
  }
  if (threadIdx.y == 0 && c < channels)
    y[n * channels + c] = narrowed<T>(sums[0][threadIdx.x] / static_cast<float>(pixels));
}

}  // namespace

void cuda(Context& ctx, const Problem& problem, const Tensor& x, Tensor& y) {
  with_float_dtype(x.dtype(), "avg_pool2d", [&]<class T>() {
    pool2d_cuda::pool2d("avg_pool2d", ctx.stream(), problem.pool, problem.layout, x.data<T>(), y.data<T>(),
                        Mean{problem.count_include_pad});
  });
}

void cuda_global(Context& ctx, Layout layout, const Tensor& x, Tensor& y) {
  constexpr const char* kOp = "global_avg_pool2d";
  const std::int64_t batch = x.shape()[0];
  const std::int64_t channels = x.shape()[1];
  const std::int64_t pixels = x.shape()[2] * x.shape()[3];
  with_float_dtype(x.dtype(), kOp, [&]<class T>() {
    if (layout == Layout::contiguous) {
      burin::cuda::launch(kOp, global_avg_pool2d_warp_plane_kernel<T>,
                          {.grid = burin::cuda::blocks_for(kOp, batch * channels, kPlanes),
                           .block = {kLanes, kPlanes},
                           .starts_early = true},
                          ctx.stream(), y.data<T>(), x.data<T>(), batch * channels, pixels);
    } else {
      const std::int64_t blocks = (channels + kChannels - 1) / kChannels;
      burin::cuda::launch(kOp, global_avg_pool2d_channels_kernel<T>,
                          {.grid = burin::cuda::blocks_for(kOp, batch * blocks, 1),
                           .block = {kChannels, kLanes},
                           .starts_early = true},
                          ctx.stream(), y.data<T>(), x.data<T>(), channels, blocks, pixels);
    }
  });
}

}  // namespace burin::avg_pool2d_impl
