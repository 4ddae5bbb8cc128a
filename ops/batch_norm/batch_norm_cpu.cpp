#include <burin/ops/activation/activation_impl.h>
#include <burin/ops/batch_norm/batch_norm_impl.h>
#include <burin/runtime/convert.h>
#include <burin/runtime/cpu/thread_pool.h>
#include <burin/runtime/dispatch.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace burin::batch_norm_impl {
namespace {

constexpr std::int64_t kGrain = 1 << 14;  // elements: below this a second thread costs more than it saves
constexpr std::int64_t kChunk = 512;      // elements held in f32 between the steps

struct Channels {
  std::vector<float> mean, scale, bias;
};

Channels channels_of(const Tensor& mean, const Tensor& var, const Tensor& weight, const Tensor& bias,
                     float eps) {
  const auto count = static_cast<std::size_t>(mean.count());
  Channels channels{std::vector<float>(mean.data<float>(), mean.data<float>() + count),
                    std::vector<float>(count, 1.0f), std::vector<float>(count, 0.0f)};
  if (weight.defined()) std::copy_n(weight.data<float>(), count, channels.scale.begin());
  if (bias.defined()) std::copy_n(bias.data<float>(), count, channels.bias.begin());
  for (std::size_t c = 0; c < count; ++c) channels.scale[c] /= std::sqrt(var.data<float>()[c] + eps);
  return channels;
}

/// A run of elements: of one channel (step 0), or of successive channels (step 1).
template <int kStep, class T>
void normalize_run(const Activation& activation, T* y, const T* x, const float* mean, const float* scale,
                   const float* bias, std::int64_t count) {
  float chunk[kChunk];
  for (std::int64_t done = 0; done < count; done += kChunk) {
    const std::int64_t length = std::min(kChunk, count - done);
    const std::int64_t c = done * kStep;
    for (std::int64_t i = 0; i < length; ++i)
      chunk[i] =
          (convert<float>(x[done + i]) - mean[c + i * kStep]) * scale[c + i * kStep] + bias[c + i * kStep];
    activation_impl::apply_run(activation, chunk, chunk, length);
    for (std::int64_t i = 0; i < length; ++i) y[done + i] = convert<T>(chunk[i]);
  }
}

}  // namespace

void cpu(Context& ctx, Tensor& y, const Tensor& x, const Planes& planes, const Tensor& mean,
         const Tensor& var, const Tensor& weight, const Tensor& bias, const BatchNormParams& params) {
  const Channels channels = channels_of(mean, var, weight, bias, params.eps);
  const bool interleaved = planes.inner == 1;
  const std::int64_t length = interleaved ? planes.channels : planes.inner;
  with_float_dtype(y.dtype(), "batch_norm", [&]<class T>() {
    T* y_data = y.data<T>();
    const T* x_data = x.data<T>();
    const auto body = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        T* to = y_data + row * length;
        const T* from = x_data + row * length;
        const auto c = static_cast<std::size_t>(interleaved ? 0 : row % planes.channels);
        const float* row_mean = channels.mean.data() + c;
        const float* row_scale = channels.scale.data() + c;
        const float* row_bias = channels.bias.data() + c;
        if (interleaved)
          normalize_run<1>(params.activation, to, from, row_mean, row_scale, row_bias, length);
        else
          normalize_run<0>(params.activation, to, from, row_mean, row_scale, row_bias, length);
      }
    };
    ctx.threads().for_ranges(x.count() / length, std::max<std::int64_t>(1, kGrain / length), body);
  });
}

}  // namespace burin::batch_norm_impl
