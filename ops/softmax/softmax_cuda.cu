#include <burin/ops/common/element.cuh>
#include <burin/ops/softmax/softmax_impl.h>
#include <burin/runtime/cuda/launch.cuh>
#include <burin/runtime/dispatch.h>

#include <cmath>

namespace burin::softmax_impl {
namespace {

constexpr const char* kOp = "softmax";
constexpr unsigned kAllLanes = 0xFFFFFFFFu;
constexpr int kWarp = 32;
constexpr int kWarpRows = 4;                   // rows of a block, one warp each
constexpr int kThreads = 256;                  // of a block, where more than a warp shares a line
constexpr std::size_t kCacheBytes = 46 << 10;  // of a line in shared memory, beside what is declared below

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }
__device__ inline float logarithm(float x) { return logf(x); }
__device__ inline double logarithm(double x) { return log(x); }

template <class T>
using Wide = decltype(widened(T()));

/// The largest of some elements, and the sum of exp(element - largest). Brought up to date as larger ones
/// appear (Milakov, Gimelshein: "Online normalizer calculation for softmax", 2018).
template <class A>
struct Normalizer {
  A largest = static_cast<A>(-INFINITY);
  A sum = 0;

  __device__ void add(A value) {
    if (value == static_cast<A>(-INFINITY)) return;  // adds exp(-inf) = 0, where -inf - -inf would be NaN
    if (value > largest) {
      sum = sum * exponential(largest - value) + (1 + (value - value));  // +inf - +inf: NaN, as it should be
      largest = value;
    } else {
      sum += exponential(value - largest);
    }
  }
  __device__ void merge(const Normalizer& other) {
    if (other.sum == 0) return;
    if (sum == 0) {
      *this = other;
      return;
    }
    const A both = largest > other.largest ? largest : other.largest;
    sum = sum * exponential(largest - both) + other.sum * exponential(other.largest - both);
    largest = both;
  }
};

template <class A>
__device__ inline A normalized(A value, const Normalizer<A>& of, A log_sum, bool log) {
  return log ? (value - of.largest) - log_sum : exponential(value - of.largest) / of.sum;
}

/// A row in the registers of one warp.
template <class T, int kPerLane>
__global__ void __launch_bounds__(kWarp* kWarpRows)
    softmax_warp_row_kernel(T* __restrict__ y, const T* __restrict__ x, std::int64_t rows, int width,
                            bool log) {
  using A = Wide<T>;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarpRows + threadIdx.y;
  burin::cuda::wait_for_previous();
  if (row >= rows) return;
  const int lane = static_cast<int>(threadIdx.x);
  A values[kPerLane];
  A largest = static_cast<A>(-INFINITY);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int at = i * kWarp + lane;
    values[i] = at < width ? widened(x[row * width + at]) : static_cast<A>(-INFINITY);
    largest = values[i] > largest ? values[i] : largest;
  }
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const A other = __shfl_xor_sync(kAllLanes, largest, step);
    largest = other > largest ? other : largest;
  }
  A sum = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (i * kWarp + lane >= width) continue;
    const A shifted = values[i] - largest;
    const A e = exponential(shifted);
    values[i] = log ? shifted : e;
    sum += e;
  }
  for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  const A log_sum = log ? logarithm(sum) : A(0);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int at = i * kWarp + lane;
    if (at < width) y[row * width + at] = narrowed<T>(log ? values[i] - log_sum : values[i] / sum);
  }
}

/// A row for one block; kept in shared memory between the two passes if `cached`.
template <class T>
__global__ void __launch_bounds__(kThreads)
    softmax_block_row_kernel(T* __restrict__ y, const T* __restrict__ x, std::int64_t width, bool log,
                             bool cached) {
  using A = Wide<T>;
  extern __shared__ __align__(16) unsigned char cache_bytes[];
  A* cache = reinterpret_cast<A*>(cache_bytes);
  __shared__ A largest[kThreads / kWarp];
  __shared__ A sums[kThreads / kWarp];
  const T* row = x + blockIdx.x * width;
  T* out = y + blockIdx.x * width;

  Normalizer<A> mine;
  burin::cuda::wait_for_previous();
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
    const A value = widened(row[i]);
    if (cached) cache[i] = value;  // read again by this thread only
    mine.add(value);
  }
  for (int step = kWarp / 2; step > 0; step /= 2) {
    Normalizer<A> other;
    other.largest = __shfl_down_sync(kAllLanes, mine.largest, step);
    other.sum = __shfl_down_sync(kAllLanes, mine.sum, step);
    mine.merge(other);
  }
  if (threadIdx.x % kWarp == 0) {
    largest[threadIdx.x / kWarp] = mine.largest;
    sums[threadIdx.x / kWarp] = mine.sum;
  }
  __syncthreads();
  Normalizer<A> all;
  for (int i = 0; i < kThreads / kWarp; ++i) {
    Normalizer<A> part;
    part.largest = largest[i];
    part.sum = sums[i];
    all.merge(part);
  }
  const A log_sum = log ? logarithm(all.sum) : A(0);
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads)
    out[i] = narrowed<T>(normalized(cached ? cache[i] : widened(row[i]), all, log_sum, log));
}

/// Neighbouring lines whose elements lie `inner` apart: threads along x take a line each, along y they share
/// it.
template <class T>
__global__ void __launch_bounds__(kThreads)
    softmax_columns_kernel(T* __restrict__ y, const T* __restrict__ x, Lines lines, bool log) {
  using A = Wide<T>;
  __shared__ A largest[kThreads];
  __shared__ A sums[kThreads];
  const std::int64_t line = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const bool live = line < lines.outer * lines.inner;
  const std::int64_t origin = line / lines.inner * lines.width * lines.inner + line % lines.inner;

  Normalizer<A> mine;
  burin::cuda::wait_for_previous();
  if (live)
    for (std::int64_t i = threadIdx.y; i < lines.width; i += blockDim.y)
      mine.add(widened(x[origin + i * lines.inner]));
  largest[threadIdx.y * blockDim.x + threadIdx.x] = mine.largest;
  sums[threadIdx.y * blockDim.x + threadIdx.x] = mine.sum;
  __syncthreads();
  if (!live) return;
  Normalizer<A> all;
  for (unsigned i = 0; i < blockDim.y; ++i) {
    Normalizer<A> part;
    part.largest = largest[i * blockDim.x + threadIdx.x];
    part.sum = sums[i * blockDim.x + threadIdx.x];
    all.merge(part);
  }
  const A log_sum = log ? logarithm(all.sum) : A(0);
  for (std::int64_t i = threadIdx.y; i < lines.width; i += blockDim.y) {
    const std::int64_t at = origin + i * lines.inner;
    y[at] = narrowed<T>(normalized(widened(x[at]), all, log_sum, log));
  }
}

template <class T>
void run(StreamView stream, const Lines& lines, bool log, const T* x, T* y) {
  namespace cu = burin::cuda;
  if (lines.inner > 1) {
    const unsigned shared_by = lines.width >= 64 ? 8 : 1;
    const dim3 block(kThreads / shared_by, shared_by);
    cu::launch(kOp, softmax_columns_kernel<T>,
               {.grid = cu::blocks_for(kOp, lines.outer * lines.inner, block.x),
                .block = block,
                .starts_early = true},
               stream, y, x, lines, log);
  } else if (lines.width <= 32 * kWarp) {
    const auto kernel = lines.width <= 4 * kWarp    ? softmax_warp_row_kernel<T, 4>
                        : lines.width <= 16 * kWarp ? softmax_warp_row_kernel<T, 16>
                                                    : softmax_warp_row_kernel<T, 32>;
    cu::launch(kOp, kernel,
               {.grid = cu::blocks_for(kOp, lines.outer, kWarpRows),
                .block = {kWarp, kWarpRows},
                .starts_early = true},
               stream, y, x, lines.outer, static_cast<int>(lines.width), log);
  } else {
    const std::size_t line_bytes = static_cast<std::size_t>(lines.width) * sizeof(Wide<T>);
    const bool cached = line_bytes <= kCacheBytes;
    cu::launch(kOp, softmax_block_row_kernel<T>,
               {.grid = cu::blocks_for(kOp, lines.outer, 1),
                .block = kThreads,
                .shared_bytes = cached ? line_bytes : 0,
                .starts_early = true},
               stream, y, x, lines.width, log, cached);
  }
}

}  // namespace

void cuda(Context& ctx, const Lines& lines, bool log, const Tensor& x, Tensor& y) {
  if (x.dtype() == DType::f64) return run(ctx.stream(), lines, log, x.data<double>(), y.data<double>());
  with_float_dtype(x.dtype(), kOp,
                   [&]<class T>() { run(ctx.stream(), lines, log, x.data<T>(), y.data<T>()); });
}

}  // namespace burin::softmax_impl
