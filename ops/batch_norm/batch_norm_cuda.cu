#include <burin/ops/batch_norm/batch_norm_impl.h>
#include <burin/ops/common/activation_apply.h>
#include <burin/ops/common/elementwise.cuh>
#include <burin/runtime/convert.h>
#include <burin/runtime/cuda/launch.cuh>
#include <burin/runtime/dispatch.h>

#include <algorithm>

namespace burin::batch_norm_impl {
namespace {

constexpr int kThreads = 256;

struct Statistics {
  const float* mean;
  const float* var;
  const float* weight;  // or null
  const float* bias;    // or null
  float eps;
};

struct Channel {
  float mean, scale, bias;
  __device__ float operator()(float x) const { return (x - mean) * scale + bias; }
};

__device__ Channel channel(const Statistics& s, std::int64_t c) {
  const float weight = s.weight ? s.weight[c] : 1.0f;
  return {s.mean[c], weight / sqrtf(s.var[c] + s.eps), s.bias ? s.bias[c] : 0.0f};
}

template <int kVector, class T>
__device__ void load(T (&values)[kVector], const T* data) {
  if constexpr (kVector > 1)
    ops::load_vector(values, data);
  else
    values[0] = *data;
}
template <int kVector, class T>
__device__ void store(T* data, const T (&values)[kVector]) {
  if constexpr (kVector > 1)
    ops::store_vector(data, values);
  else
    *data = values[0];
}

/// A thread takes kVector elements of one plane at a time; planes.inner is a multiple of it.
template <int kVector, class T>
__global__ void batch_norm_planar_kernel(T* y, const T* x, const Planes planes, const Statistics statistics,
                                         const Activation activation) {
  const std::int64_t per_plane = planes.inner / kVector;
  cuda::for_each_index(planes.outer * planes.channels * per_plane, [&](std::int64_t i) {
    const Channel normalize = channel(statistics, i / per_plane % planes.channels);
    T values[kVector];
    load(values, x + i * kVector);
    for (int v = 0; v < kVector; ++v)
      values[v] = convert<T>(activate(activation, normalize(convert<float>(values[v]))));
    store(y + i * kVector, values);
  });
}

/// Each plane is one element. A thread keeps kVector channels (planes.channels is a multiple of it) and walks
/// down the pixels.
template <int kVector, class T>
__global__ void batch_norm_interleaved_kernel(T* y, const T* x, const Planes planes,
                                              const Statistics statistics, const Activation activation) {
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kVector;
  cuda::wait_for_previous();
  if (first >= planes.channels) return;
  Channel normalize[kVector];
  for (int v = 0; v < kVector; ++v) normalize[v] = channel(statistics, first + v);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * blockDim.y;
  for (std::int64_t p = static_cast<std::int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; p < planes.outer;
       p += step) {
    T values[kVector];
    load(values, x + p * planes.channels + first);
    for (int v = 0; v < kVector; ++v)
      values[v] = convert<T>(activate(activation, normalize[v](convert<float>(values[v]))));
    store(y + p * planes.channels + first, values);
  }
}

template <int kVector, class T>
void launch_kernel(Context& ctx, T* y, const T* x, const Planes& planes, const Statistics& statistics,
                   const Activation& activation) {
  if (planes.inner > 1) {
    cuda::launch("batch_norm", batch_norm_planar_kernel<kVector, T>,
                 cuda::grid_stride_shape(planes.outer * planes.channels * (planes.inner / kVector)),
                 ctx.stream(), y, x, planes, statistics, activation);
    return;
  }
  const std::int64_t columns = planes.channels / kVector;
  unsigned width = 1;
  while (width < columns && width < 64) width *= 2;
  const unsigned height = kThreads / width;
  const unsigned across = cuda::blocks_for("batch_norm", columns, width);
  // A few pixels a thread pay for its channels; blocks enough to fill any GPU a few times over.
  const std::int64_t down = (planes.outer + height * 4 - 1) / (height * 4);
  const auto most = std::max<std::int64_t>(1, 4096 / across);
  cuda::launch("batch_norm", batch_norm_interleaved_kernel<kVector, T>,
               {.grid = dim3(across, static_cast<unsigned>(std::min(down, most))),
                .block = dim3(width, height),
                .starts_early = true},
               ctx.stream(), y, x, planes, statistics, activation);
}

}  // namespace

void cuda(Context& ctx, Tensor& y, const Tensor& x, const Planes& planes, const Tensor& mean,
          const Tensor& var, const Tensor& weight, const Tensor& bias, const BatchNormParams& params) {
  const Statistics statistics{mean.data<float>(), var.data<float>(),
                              weight.defined() ? weight.data<float>() : nullptr,
                              bias.defined() ? bias.data<float>() : nullptr, params.eps};
  with_float_dtype(y.dtype(), "batch_norm", [&]<class T>() {
    constexpr int kVector = sizeof(uint4) / sizeof(T);
    T* to = y.data<T>();
    const T* from = x.data<T>();
    const bool aligned = cuda::is_aligned(to) && cuda::is_aligned(from);
    if (aligned && (planes.inner > 1 ? planes.inner : planes.channels) % kVector == 0)
      launch_kernel<kVector>(ctx, to, from, planes, statistics, params.activation);
    else
      launch_kernel<1>(ctx, to, from, planes, statistics, params.activation);
  });
}

}  // namespace burin::batch_norm_impl
