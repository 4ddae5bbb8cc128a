#pragma once
// Private: the backends of activation.

#include <burin/ops/activation/activation.h>
#include <burin/runtime/strided.h>

#include <cstdint>

namespace burin::activation_impl {

// Operands of `loop`: y, x; at least one element. y may be x.
void cpu(Context& ctx, const Activation& a, Tensor& y, const Tensor& x, const StridedLoop<2>& loop);
void cuda(Context& ctx, const Activation& a, Tensor& y, const Tensor& x, const StridedLoop<2>& loop);

/// y[i] = f(x[i]) on the host, vectorised, on the calling thread; y may be x. Also the epilogue of other
/// operators.
void apply_run(const Activation& a, float* y, const float* x, std::int64_t count);

}  // namespace burin::activation_impl
