#include <burin/ops/batch_norm/batch_norm.h>
#include <burin/ops/batch_norm/batch_norm_impl.h>
#include <burin/ops/common/check.h>

namespace burin {
namespace {

void check_inputs(const Context& ctx, const Tensor& x, const Tensor& mean, const Tensor& var,
                  const Tensor& weight, const Tensor& bias) {
  ops::check_device("batch_norm", ctx, {{"x", x}, {"mean", mean}, {"var", var}});
  if (weight.defined()) ops::check_device("batch_norm", ctx, {{"weight", weight}});
  if (bias.defined()) ops::check_device("batch_norm", ctx, {{"bias", bias}});
  ops::check_float_dtype("batch_norm", {"x", x});
  BURIN_CHECK(x.rank() >= 2, ShapeError, "batch_norm: x must have 2 axes or more; it has shape {}",
              x.shape());
  for (const auto& [label, tensor] :
       {ops::NamedTensor{"mean", mean}, {"var", var}, {"weight", weight}, {"bias", bias}}) {
    if (!tensor.defined()) continue;
    BURIN_CHECK(tensor.shape() == Shape{x.shape()[1]}, ShapeError,
                "batch_norm: {} has shape {} and must have one value for each channel of x ({})", label,
                tensor.shape(), x.shape()[1]);
    BURIN_CHECK(tensor.dtype() == DType::f32 || tensor.dtype() == x.dtype(), DTypeError,
                "batch_norm: {} is {} and must be f32 or, as x, {}", label, name(tensor.dtype()),
                name(x.dtype()));
  }
}

}  // namespace

Tensor batch_norm(Context& ctx, const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                  const Tensor& bias, const BatchNormParams& params) {
  check_inputs(ctx, x, mean, var, weight, bias);
  Tensor y = empty(ctx, x.shape(), x.dtype(), x.layout());
  batch_norm_into(ctx, y, x, mean, var, weight, bias, params);
  return y;
}

void batch_norm_into(Context& ctx, Tensor& y, const Tensor& x, const Tensor& mean, const Tensor& var,
                     const Tensor& weight, const Tensor& bias, const BatchNormParams& params) {
  const OpScope scope(ctx, "batch_norm", {&x, &mean, &var, &weight, &bias}, y);
  check_inputs(ctx, x, mean, var, weight, bias);
  ops::check_elementwise_output("batch_norm", y, dense_spec(x.dtype(), x.shape(), ctx.device()),
                                {{"x", x}, {"mean", mean}, {"var", var}, {"weight", weight}, {"bias", bias}});
  BURIN_CHECK(y.is_dense_in(y.layout()), ShapeError,
              "batch_norm: the output must be dense; it has strides {} of shape {}", to_string(y.strides()),
              y.shape());
  if (y.count() == 0) return;

  const auto dense_f32 = [&](const Tensor& v) {
    return v.defined() ? contiguous(ctx, to(ctx, v, DType::f32)) : v;
  };
  const Tensor dense_x = to(ctx, x, y.layout());
  const std::int64_t channels = x.shape()[1];
  batch_norm_impl::Planes planes{x.shape()[0], channels, x.count() / (x.shape()[0] * channels)};
  if (y.is_channels_last()) planes = {x.count() / channels, channels, 1};
  if (ops::choose("batch_norm", ctx) == Backend::cpu)
    return batch_norm_impl::cpu(ctx, y, dense_x, planes, dense_f32(mean), dense_f32(var), dense_f32(weight),
                                dense_f32(bias), params);
  if constexpr (kHasCuda)
    batch_norm_impl::cuda(ctx, y, dense_x, planes, dense_f32(mean), dense_f32(var), dense_f32(weight),
                          dense_f32(bias), params);
}

}  // namespace burin
