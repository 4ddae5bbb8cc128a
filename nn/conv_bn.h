#pragma once

#include <burin/nn/layers.h>
#include <burin/runtime/export.h>

#include <optional>
#include <string_view>

namespace burin::nn {

/// Puts what the batch norm does into the convolution before it, scaled by output channel:
/// weight * s and beta + (bias - mean) * s with s = gamma / sqrt(var + eps). The convolution has a bias
/// afterwards. Computed in double, rounded once to the dtype of the weight, whose layout stays. Throws
/// ShapeError if the channels differ, Error if the convolution has an activation or a value is missing; then
/// nothing has changed.
BURIN_API void fold_batch_norm(Context& ctx, Conv2d& conv, const BatchNorm2d& bn);

/// A convolution and the batch norm behind it, as one part of a larger module.
struct BURIN_API ConvBn {
  /// The convolution has padding kernel / 2 and no bias.
  ConvBn(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride);

  /// activation(bn(conv(x)) + residual): one call once folded.
  Tensor operator()(Context& ctx, const Tensor& x, const Activation& activation,
                    const Tensor& residual = {}) const;
  void fold(Context& ctx);
  void list(Members& m, std::string_view conv_name, std::string_view bn_name);

  Conv2d conv;
  std::optional<BatchNorm2d> bn;  // gone once folded
};

}  // namespace burin::nn
