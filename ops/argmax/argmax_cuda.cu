#include <burin/ops/argmax/argmax_impl.h>
#include <burin/ops/common/element.cuh>
#include <burin/runtime/cuda/launch.cuh>
#include <burin/runtime/dispatch.h>

namespace burin::argmax_impl {
namespace {

constexpr const char* kOp = "argmax";
constexpr unsigned kWarp = 32;
constexpr unsigned kThreads = 256;

template <class T>
struct Best {
  T value{};
  std::int64_t index = -1;  // none yet

  /// Takes a later element of the same line.
  __device__ void add(T other, std::int64_t at) {
    if (index >= 0 && !exceeds(other, value)) return;
    value = other;
    index = at;
  }
  /// Takes the best of other elements, before or after.
  __device__ void merge(const Best& other) {
    if (other.index < 0) return;
    if (index >= 0 && (exceeds(value, other.value) || (!exceeds(other.value, value) && index < other.index)))
      return;
    *this = other;
  }
};

/// Lines without gaps: the threads along x share one, those along y take their own.
template <class T>
__global__ void __launch_bounds__(kThreads)
    argmax_row_kernel(std::int64_t* __restrict__ y, const T* __restrict__ x, std::int64_t rows,
                      std::int64_t width) {
  using A = comparable_t<T>;
  __shared__ A values[kThreads / kWarp];
  __shared__ std::int64_t indices[kThreads / kWarp];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  burin::cuda::wait_for_previous();
  if (row >= rows) return;  // whole warps, and no block of which threads share a row
  Best<A> best;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) best.add(widened(x[row * width + i]), i);
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    Best<A> other;
    other.value = static_cast<A>(__shfl_down_sync(0xFFFFFFFFu, best.value, step));
    other.index = __shfl_down_sync(0xFFFFFFFFu, best.index, step);
    best.merge(other);
  }
  if (blockDim.x > kWarp) {
    if (threadIdx.x % kWarp == 0) {
      values[threadIdx.x / kWarp] = best.value;
      indices[threadIdx.x / kWarp] = best.index;
    }
    __syncthreads();
    if (threadIdx.x == 0)
      for (unsigned i = 1; i < blockDim.x / kWarp; ++i) best.merge({values[i], indices[i]});
  }
  if (threadIdx.x == 0) y[row] = best.index;
}

/// Neighbouring lines whose elements lie `inner` apart: threads along x take a line each, along y they share
/// it.
template <class T>
__global__ void __launch_bounds__(kThreads)
    argmax_columns_kernel(std::int64_t* __restrict__ y, const T* __restrict__ x, Lines lines) {
  using A = comparable_t<T>;
  __shared__ A values[kThreads];
  __shared__ std::int64_t indices[kThreads];
  const std::int64_t line = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const bool live = line < lines.outer * lines.inner;
  const std::int64_t origin = line / lines.inner * lines.width * lines.inner + line % lines.inner;
  Best<A> best;
  burin::cuda::wait_for_previous();
  if (live)
    for (std::int64_t i = threadIdx.y; i < lines.width; i += blockDim.y)
      best.add(widened(x[origin + i * lines.inner]), i);
  values[threadIdx.y * blockDim.x + threadIdx.x] = best.value;
  indices[threadIdx.y * blockDim.x + threadIdx.x] = best.index;
  __syncthreads();
  if (!live || threadIdx.y != 0) return;
  for (unsigned i = 1; i < blockDim.y; ++i)
    best.merge({values[i * blockDim.x + threadIdx.x], indices[i * blockDim.x + threadIdx.x]});
  y[line] = best.index;
}

}  // namespace

void cuda(Context& ctx, const Lines& lines, const Tensor& x, Tensor& y) {
  namespace cu = burin::cuda;
  std::int64_t* out = y.data<std::int64_t>();
  with_any_dtype(x.dtype(), kOp, [&]<class T>() {
    if (lines.inner > 1) {
      const unsigned shared_by = lines.width >= 64 ? 8 : 1;
      const dim3 block(kThreads / shared_by, shared_by);
      cu::launch(kOp, argmax_columns_kernel<T>,
                 {.grid = cu::blocks_for(kOp, lines.outer * lines.inner, block.x),
                  .block = block,
                  .starts_early = true},
                 ctx.stream(), out, x.data<T>(), lines);
    } else {
      const dim3 block = lines.width <= 1024 ? dim3(kWarp, kThreads / kWarp) : dim3(kThreads);
      cu::launch(kOp, argmax_row_kernel<T>,
                 {.grid = cu::blocks_for(kOp, lines.outer, block.y), .block = block, .starts_early = true},
                 ctx.stream(), out, x.data<T>(), lines.outer, lines.width);
    }
  });
}

}  // namespace burin::argmax_impl
