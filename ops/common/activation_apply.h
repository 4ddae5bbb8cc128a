#pragma once
// Private: the arithmetic of every activation, once, for CPU and GPU. NaN in gives NaN out.

#include <burin/ops/common/activation.h>
#include <burin/runtime/float16.h>

#include <cmath>

namespace burin {

template <ActivationKind kKind>
BURIN_HOST_DEVICE inline float activate(float x, [[maybe_unused]] float alpha, [[maybe_unused]] float beta) {
  if constexpr (kKind == ActivationKind::none) return x;
  if constexpr (kKind == ActivationKind::relu) return x < 0.0f ? 0.0f : x;
  if constexpr (kKind == ActivationKind::sigmoid) return 1.0f / (1.0f + expf(-x));
  if constexpr (kKind == ActivationKind::tanh) return tanhf(x);
  if constexpr (kKind == ActivationKind::gelu) return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
  if constexpr (kKind == ActivationKind::gelu_tanh)
    return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
  if constexpr (kKind == ActivationKind::silu) return x / (1.0f + expf(-x));
  if constexpr (kKind == ActivationKind::leaky_relu) return x < 0.0f ? alpha * x : x;
  if constexpr (kKind == ActivationKind::clip) {
    const float raised = x < alpha ? alpha : x;
    return raised > beta ? beta : raised;
  }
}

/// The same with the kind known only at run time; for epilogues, where one uniform branch costs nothing
/// beside the product.
BURIN_HOST_DEVICE inline float activate(Activation a, float x) {
  switch (a.kind) {
    case ActivationKind::none: return x;
    case ActivationKind::relu: return activate<ActivationKind::relu>(x, 0, 0);
    case ActivationKind::sigmoid: return activate<ActivationKind::sigmoid>(x, 0, 0);
    case ActivationKind::tanh: return activate<ActivationKind::tanh>(x, 0, 0);
    case ActivationKind::gelu: return activate<ActivationKind::gelu>(x, 0, 0);
    case ActivationKind::gelu_tanh: return activate<ActivationKind::gelu_tanh>(x, 0, 0);
    case ActivationKind::silu: return activate<ActivationKind::silu>(x, 0, 0);
    case ActivationKind::leaky_relu: return activate<ActivationKind::leaky_relu>(x, a.alpha, 0);
    case ActivationKind::clip: return activate<ActivationKind::clip>(x, a.alpha, a.beta);
  }
  return x;
}

/// Calls body.template operator()<kKind>().
template <class Body>
decltype(auto) with_activation(ActivationKind kind, Body&& body) {
  switch (kind) {
    case ActivationKind::none: break;
    case ActivationKind::relu: return body.template operator()<ActivationKind::relu>();
    case ActivationKind::sigmoid: return body.template operator()<ActivationKind::sigmoid>();
    case ActivationKind::tanh: return body.template operator()<ActivationKind::tanh>();
    case ActivationKind::gelu: return body.template operator()<ActivationKind::gelu>();
    case ActivationKind::gelu_tanh: return body.template operator()<ActivationKind::gelu_tanh>();
    case ActivationKind::silu: return body.template operator()<ActivationKind::silu>();
    case ActivationKind::leaky_relu: return body.template operator()<ActivationKind::leaky_relu>();
    case ActivationKind::clip: return body.template operator()<ActivationKind::clip>();
  }
  return body.template operator()<ActivationKind::none>();
}

}  // namespace burin
