#pragma once

#include <cstdint>

namespace burin {

/// A function of one element, as an operator of its own (activation(ctx, x, a)) or fused behind conv2d and
/// linear.
enum class ActivationKind : std::uint32_t {
  none,
  relu,
  sigmoid,
  tanh,
  gelu,
  gelu_tanh,
  silu,
  leaky_relu,
  clip
};

struct Activation {
  ActivationKind kind = ActivationKind::none;
  float alpha = 0.0f;  // leaky_relu: the slope below 0; clip: the lower bound
  float beta = 0.0f;   // clip: the upper bound, which wins if the bounds cross

  static constexpr Activation relu() { return {ActivationKind::relu}; }
  static constexpr Activation sigmoid() { return {ActivationKind::sigmoid}; }
  static constexpr Activation tanh() { return {ActivationKind::tanh}; }
  /// x * Phi(x), by erf.
  static constexpr Activation gelu() { return {ActivationKind::gelu}; }
  /// Hendrycks, Gimpel 2016, equation 2.
  static constexpr Activation gelu_tanh() { return {ActivationKind::gelu_tanh}; }
  static constexpr Activation silu() { return {ActivationKind::silu}; }
  static constexpr Activation leaky_relu(float slope) { return {ActivationKind::leaky_relu, slope}; }
  static constexpr Activation clip(float low, float high) { return {ActivationKind::clip, low, high}; }
  bool operator==(const Activation&) const = default;
};

}  // namespace burin
