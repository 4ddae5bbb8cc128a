#pragma once
// Private: the backends of batch_norm.

#include <burin/ops/batch_norm/batch_norm.h>

#include <cstdint>

namespace burin::batch_norm_impl {

/// x and y as dense memory: `outer` blocks of `channels` planes of `inner` elements. Channels-last has one
/// element a plane, [N, C, ...] in row-major order one plane an image and channel.
struct Planes {
  std::int64_t outer = 0;
  std::int64_t channels = 0;
  std::int64_t inner = 0;
};

// x and y dense in one order, at least one element; y may be x. mean and var [C]; weight and bias [C] or
// undefined; all f32 and contiguous.
void cpu(Context& ctx, Tensor& y, const Tensor& x, const Planes& planes, const Tensor& mean,
         const Tensor& var, const Tensor& weight, const Tensor& bias, const BatchNormParams& params);
void cuda(Context& ctx, Tensor& y, const Tensor& x, const Planes& planes, const Tensor& mean,
          const Tensor& var, const Tensor& weight, const Tensor& bias, const BatchNormParams& params);

}  // namespace burin::batch_norm_impl
