#include <burin/ops/activation/activation.h>
#include <burin/ops/activation/activation_impl.h>
#include <burin/ops/common/check.h>

namespace burin {

Tensor activation(Context& ctx, const Tensor& x, const Activation& a) {
  ops::check_device("activation", ctx, {{"x", x}});
  Tensor y = empty(ctx, x.shape(), x.dtype(), x.layout());
  activation_into(ctx, y, x, a);
  return y;
}

void activation_into(Context& ctx, Tensor& y, const Tensor& x, const Activation& a) {
  const OpScope scope(ctx, "activation", {&x}, y);
  ops::check_device("activation", ctx, {{"x", x}});
  ops::check_float_dtype("activation", {"x", x});
  ops::check_elementwise_output("activation", y, dense_spec(x.dtype(), x.shape(), ctx.device()), {{"x", x}});
  if (y.count() == 0) return;
  const auto loop = make_strided_loop<2>(x.shape(), {y.strides(), x.strides()});
  if (ops::choose("activation", ctx) == Backend::cpu) return activation_impl::cpu(ctx, a, y, x, loop);
  if constexpr (kHasCuda) activation_impl::cuda(ctx, a, y, x, loop);
}

}  // namespace burin
