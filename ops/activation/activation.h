#pragma once

#include <burin/ops/common/activation.h>
#include <burin/runtime/context.h>
#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

namespace burin {

/// y = f(x), element by element, with f as `a` says (`none` copies).
///
/// x: f32, f16 or bf16, any strides. y is new, in x's layout. f16 and bf16 compute in f32 and round once. NaN
/// gives NaN. Throws DTypeError, DeviceError, OutOfMemory. Runs in the order of the context's stream.
BURIN_API Tensor activation(Context& ctx, const Tensor& x, const Activation& a);
/// The same into y: any strides, and y may be x itself (in place), but must not overlap it otherwise.
BURIN_API void activation_into(Context& ctx, Tensor& y, const Tensor& x, const Activation& a);

inline Tensor relu(Context& ctx, const Tensor& x) { return activation(ctx, x, Activation::relu()); }
inline Tensor sigmoid(Context& ctx, const Tensor& x) { return activation(ctx, x, Activation::sigmoid()); }
inline Tensor tanh(Context& ctx, const Tensor& x) { return activation(ctx, x, Activation::tanh()); }
inline Tensor gelu(Context& ctx, const Tensor& x) { return activation(ctx, x, Activation::gelu()); }
inline Tensor gelu_tanh(Context& ctx, const Tensor& x) { return activation(ctx, x, Activation::gelu_tanh()); }
inline Tensor silu(Context& ctx, const Tensor& x) { return activation(ctx, x, Activation::silu()); }
inline Tensor leaky_relu(Context& ctx, const Tensor& x, float slope = 0.01f) {
  return activation(ctx, x, Activation::leaky_relu(slope));
}
inline Tensor clip(Context& ctx, const Tensor& x, float low, float high) {
  return activation(ctx, x, Activation::clip(low, high));
}

}  // namespace burin
