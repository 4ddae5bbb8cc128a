#include <burin/nn/layers.h>
#include <burin/ops/activation/activation.h>
#include <burin/ops/batch_norm/batch_norm.h>
#include <burin/ops/linear/linear.h>
#include <burin/runtime/check.h>

namespace burin::nn {

Conv2d::Conv2d(std::int64_t in, std::int64_t out, std::array<std::int64_t, 2> kernel, Conv2dOptions options)
    : params{options.stride, options.dilation, options.padding, options.groups, options.activation} {
  BURIN_CHECK(in >= 1 && out >= 1 && kernel[0] >= 1 && kernel[1] >= 1, ShapeError,
              "Conv2d: channels {} to {} and kernel {} x {} must be at least 1", in, out, kernel[0],
              kernel[1]);
  BURIN_CHECK(options.groups >= 1 && in % options.groups == 0 && out % options.groups == 0, ShapeError,
              "Conv2d: groups ({}) must divide channels {} and {}", options.groups, in, out);
  weight = Parameter({out, in / options.groups, kernel[0], kernel[1]});
  if (options.bias) bias = Parameter({out}, Init::zeros);
}

Tensor Conv2d::forward(Context& ctx, const Tensor& x) const {
  return forward_fused(ctx, x, params.activation);
}

Tensor Conv2d::forward_fused(Context& ctx, const Tensor& x, const Activation& activation,
                             const Tensor& residual) const {
  Conv2dParams fused = params;
  fused.activation = activation;
  const Tensor& w = weight.value("Conv2d: weight");
  return conv2d(ctx, x, w, bias.value("Conv2d: bias"), fused, residual);
}

Linear::Linear(std::int64_t in, std::int64_t out, bool with_bias, const Activation& fused)
    : activation(fused), weight({out, in}) {
  if (with_bias) bias = Parameter({out}, Init::zeros);
}

Tensor Linear::forward(Context& ctx, const Tensor& x) const {
  const Tensor& w = weight.value("Linear: weight");
  return linear(ctx, x, w, bias.value("Linear: bias"), {activation});
}

BatchNorm2d::BatchNorm2d(std::int64_t channels, float epsilon)
    : eps(epsilon),
      weight({channels}, Init::ones),
      bias({channels}, Init::zeros),
      running_mean({channels}, Init::zeros, true),
      running_var({channels}, Init::ones, true) {}

Tensor BatchNorm2d::forward_fused(Context& ctx, const Tensor& x, const Activation& activation) const {
  return batch_norm(ctx, x, running_mean.value("BatchNorm2d: running_mean"),
                    running_var.value("BatchNorm2d: running_var"), weight.value("BatchNorm2d: weight"),
                    bias.value("BatchNorm2d: bias"), {eps, activation});
}

Tensor MaxPool2d::forward(Context& ctx, const Tensor& x) const { return max_pool2d(ctx, x, params); }

Tensor AvgPool2d::forward(Context& ctx, const Tensor& x) const { return avg_pool2d(ctx, x, params); }

Tensor GlobalAvgPool2d::forward(Context& ctx, const Tensor& x) const { return global_avg_pool2d(ctx, x); }

Tensor ReLU::forward(Context& ctx, const Tensor& x) const { return relu(ctx, x); }

Tensor Flatten::forward(Context& ctx, const Tensor& x) const {
  return contiguous(ctx, x).flatten(first, last);
}

}  // namespace burin::nn
