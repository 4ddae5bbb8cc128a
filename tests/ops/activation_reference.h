#pragma once
// The activations that the tests compare with, in double.

#include <burin/ops/common/activation.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace burin::test {

inline double activated(const Activation& a, double x) {
  switch (a.kind) {
    case ActivationKind::none: return x;
    case ActivationKind::relu: return x < 0 ? 0 : x;
    case ActivationKind::sigmoid: return 1 / (1 + std::exp(-x));
    case ActivationKind::tanh: return std::tanh(x);
    case ActivationKind::gelu: return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case ActivationKind::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case ActivationKind::silu: return x / (1 + std::exp(-x));
    case ActivationKind::leaky_relu: return x < 0 ? double{a.alpha} * x : x;
    case ActivationKind::clip:
      return std::isnan(x) ? x : std::min<double>(std::max<double>(x, a.alpha), a.beta);
  }
  return x;
}

}  // namespace burin::test
