#include <burin/nn/conv_bn.h>
#include <burin/ops/activation/activation.h>
#include <burin/ops/binary/binary.h>
#include <burin/runtime/check.h>
#include <burin/runtime/name_scope.h>

#include <cmath>
#include <vector>

namespace burin::nn {
namespace {

std::vector<double> doubles(Context& ctx, const Tensor& x) {
  return to_vector<double>(ctx, to(ctx, x, DType::f64));
}

}  // namespace

void fold_batch_norm(Context& ctx, Conv2d& conv, const BatchNorm2d& bn) {
  const Shape& shape = conv.weight.shape();
  BURIN_CHECK(bn.weight.shape() == Shape{shape[0]}, ShapeError,
              "fold_batch_norm: {} channels of the batch norm must equal the convolution's {}",
              bn.weight.shape()[0], shape[0]);
  BURIN_CHECK(conv.params.activation == Activation(), Error,
              "fold_batch_norm: the convolution has an activation before the batch norm");
  const Tensor& weight = conv.weight.value("fold_batch_norm: weight of the convolution");
  const Tensor& bias = conv.bias.value("fold_batch_norm: bias of the convolution");
  const std::vector<double> gamma = doubles(ctx, bn.weight.value("fold_batch_norm: weight"));
  const std::vector<double> beta = doubles(ctx, bn.bias.value("fold_batch_norm: bias"));
  const std::vector<double> mean = doubles(ctx, bn.running_mean.value("fold_batch_norm: running_mean"));
  const std::vector<double> var = doubles(ctx, bn.running_var.value("fold_batch_norm: running_var"));

  std::vector<double> w = doubles(ctx, weight);
  std::vector<double> b = bias.defined() ? doubles(ctx, bias) : std::vector<double>(gamma.size(), 0.0);
  const std::size_t taps = w.size() / gamma.size();  // of one output channel
  for (std::size_t k = 0; k < gamma.size(); ++k) {
    const double scale = gamma[k] / std::sqrt(var[k] + static_cast<double>(bn.eps));
    for (std::size_t i = k * taps; i < (k + 1) * taps; ++i) w[i] *= scale;
    b[k] = beta[k] + (b[k] - mean[k]) * scale;
  }
  Tensor folded = to(ctx, to(ctx, from_host(ctx, w, shape), weight.dtype()), weight.layout());
  Parameter folded_bias(bn.bias.shape(), Init::zeros);
  folded_bias.set(to(ctx, from_host(ctx, b, folded_bias.shape()), weight.dtype()));
  conv.weight.set(std::move(folded));
  conv.bias = std::move(folded_bias);
}

ConvBn::ConvBn(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride)
    : conv(in, out, kernel,
           {.stride = {stride, stride}, .padding = Padding2d::all(kernel / 2), .bias = false}),
      bn(out) {}

Tensor ConvBn::operator()(Context& ctx, const Tensor& x, const Activation& activation,
                          const Tensor& residual) const {
  if (!bn) {
    const NameScope scope(ctx, conv.member_name());
    return conv.forward_fused(ctx, x, activation, residual);
  }
  Tensor y = conv(ctx, x);
  const NameScope scope(ctx, bn->member_name());
  if (!residual.defined()) return bn->forward_fused(ctx, y, activation);
  y = bn->forward(ctx, y);
  add_into(ctx, y, y, residual);
  activation_into(ctx, y, y, activation);
  return y;
}

void ConvBn::fold(Context& ctx) {
  if (!bn) return;
  fold_batch_norm(ctx, conv, *bn);
  bn.reset();
}

void ConvBn::list(Members& m, std::string_view conv_name, std::string_view bn_name) {
  m.add(conv_name, conv);
  if (bn) m.add(bn_name, *bn);
}

}  // namespace burin::nn
