#include <burin/ops/activation/activation_impl.h>
#include <burin/ops/common/activation_apply.h>
#include <burin/ops/common/vector_math.h>
#include <burin/runtime/convert.h>
#include <burin/runtime/cpu/thread_pool.h>
#include <burin/runtime/dispatch.h>

#include <algorithm>
#include <type_traits>

namespace burin::activation_impl {
namespace {

constexpr std::int64_t kGrain = 1 << 14;  // elements: below this a second thread costs more than it saves
constexpr std::int64_t kChunk = 512;      // elements of f32 that stand in for f16, bf16 and strided ones

/// activate<kKind> without calls of the C library, so that a loop over it vectorises.
template <ActivationKind kKind>
float vector_activate(float x, float alpha, float beta) {
  if constexpr (kKind == ActivationKind::sigmoid)
    return 1.0f / (1.0f + vector_exp(-x));
  else if constexpr (kKind == ActivationKind::silu)
    return x / (1.0f + vector_exp(-x));
  else if constexpr (kKind == ActivationKind::tanh)
    return vector_tanh(x);
  else if constexpr (kKind == ActivationKind::gelu)
    return 0.5f * x * (1.0f + vector_erf(x * 0.70710678118654752f));
  else if constexpr (kKind == ActivationKind::gelu_tanh)
    return 0.5f * x * (1.0f + vector_tanh(0.79788456080286536f * (x + 0.044715f * x * x * x)));
  else
    return activate<kKind>(x, alpha, beta);
}

}  // namespace

void apply_run(const Activation& a, float* y, const float* x, std::int64_t count) {
  with_activation(a.kind, [&]<ActivationKind kKind>() {
    if (kKind == ActivationKind::none && y == x) return;
    const float alpha = a.alpha;
    const float beta = a.beta;
#pragma GCC ivdep  // y may be x
    for (std::int64_t i = 0; i < count; ++i) y[i] = vector_activate<kKind>(x[i], alpha, beta);
  });
}

void cpu(Context& ctx, const Activation& a, Tensor& y, const Tensor& x, const StridedLoop<2>& loop) {
  const std::int64_t y_step = loop.strides[0][loop.rank - 1];
  const std::int64_t x_step = loop.strides[1][loop.rank - 1];
  with_float_dtype(y.dtype(), "activation", [&]<class T>() {
    T* y_data = y.data<T>();
    const T* x_data = x.data<T>();
    const auto run = [&](const std::array<std::int64_t, 2>& offsets, std::int64_t count) {
      T* to = y_data + offsets[0];
      const T* from = x_data + offsets[1];
      if constexpr (std::is_same_v<T, float>)
        if (y_step == 1 && x_step == 1) return apply_run(a, to, from, count);
      float chunk[kChunk];
      for (std::int64_t done = 0; done < count; done += kChunk) {
        const std::int64_t length = std::min(kChunk, count - done);
        for (std::int64_t i = 0; i < length; ++i) chunk[i] = convert<float>(from[(done + i) * x_step]);
        apply_run(a, chunk, chunk, length);
        for (std::int64_t i = 0; i < length; ++i) to[(done + i) * y_step] = convert<T>(chunk[i]);
      }
    };
    ctx.threads().for_ranges(loop.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for_each_run(loop, begin, end, run);
    });
  });
}

}  // namespace burin::activation_impl
