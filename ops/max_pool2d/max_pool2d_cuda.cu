#include <burin/ops/common/pool2d.cuh>
#include <burin/ops/max_pool2d/max_pool2d_impl.h>
#include <burin/runtime/dispatch.h>

#include <cmath>

namespace burin::max_pool2d_impl {
namespace {

struct Largest {
  __device__ float init() const { return -INFINITY; }
  __device__ float operator()(float best, float value) const {
    return best >= value || best != best ? best : value;
  }
  template <class Index>
  __device__ float finish(float best, const Pool2d<Index>&, Index, Index) const {
    return best;
  }
};

template <class T, class Index>
__global__ void __launch_bounds__(pool2d_cuda::kThreads)
    max_pool2d_indices_kernel(T* __restrict__ y, std::int64_t* __restrict__ indices, const T* __restrict__ x,
                              Pool2d<Index> p, pool2d_cuda::Windows<1, Index> windows, bool row_major,
                              std::int64_t count) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * pool2d_cuda::kThreads + threadIdx.x;
  const auto at = windows.at(static_cast<Index>(thread));
  burin::cuda::wait_for_previous();
  if (thread >= count) return;
  const T* origin = x + pool2d_cuda::origin_of(p, windows.channels_last(), at);
  const Index pitch = windows.channels_last() ? p.channels : 1;
  const PoolTaps<Index> rows = p.h.taps(at.oh);
  const PoolTaps<Index> columns = p.w.taps(at.ow);
  Index best_h = rows.first;
  Index best_w = columns.first;
  float best = widened(origin[(best_h * p.w.in + best_w) * pitch]);
  for (Index h = rows.first; h < rows.end; h += p.h.dilation)
    for (Index w = columns.first; w < columns.end; w += p.w.dilation) {
      const float value = widened(origin[(h * p.w.in + w) * pitch]);
      if (!exceeds(value, best)) continue;
      best = value;
      best_h = h;
      best_w = w;
    }
  const std::int64_t plane = static_cast<std::int64_t>(at.n) * p.channels + at.c;
  y[thread] = narrowed<T>(best);
  indices[thread] =
      plane * p.h.in * p.w.in + (row_major ? best_h * p.w.in + best_w : best_h + best_w * p.h.in);
}

}  // namespace

void cuda(Context& ctx, const Problem& problem, const Tensor& x, Tensor& y) {
  with_float_dtype(x.dtype(), "max_pool2d", [&]<class T>() {
    pool2d_cuda::pool2d("max_pool2d", ctx.stream(), problem.pool, problem.layout, x.data<T>(), y.data<T>(),
                        Largest{});
  });
}

void cuda_with_indices(Context& ctx, const Problem& problem, IndexOrder order, const Tensor& x,
                       MaxPool2dResult& y) {
  const std::int64_t count = y.values.count();
  with_float_dtype(x.dtype(), "max_pool2d", [&]<class T>() {
    pool2d_cuda::with_index(problem.pool, [&]<class Index>(const Pool2d<Index>& p) {
      burin::cuda::launch("max_pool2d", max_pool2d_indices_kernel<T, Index>,
                          {.grid = burin::cuda::blocks_for("max_pool2d", count, pool2d_cuda::kThreads),
                           .block = pool2d_cuda::kThreads,
                           .starts_early = true},
                          ctx.stream(), y.values.data<T>(), y.indices.data<std::int64_t>(), x.data<T>(), p,
                          pool2d_cuda::Windows<1, Index>(p, problem.layout == Layout::channels_last),
                          order == IndexOrder::row_major, count);
    });
  });
}

}  // namespace burin::max_pool2d_impl
