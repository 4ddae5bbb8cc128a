#include <burin/ops/cast/cast.h>
#include <burin/ops/common/check.h>

namespace burin {

Tensor cast(Context& ctx, const Tensor& x, const CastParams& params) {
  ops::check_device("cast", ctx, {{"x", x}});
  return to(ctx, x, params.dtype);
}

void cast_into(Context& ctx, Tensor& y, const Tensor& x) {
  const OpScope scope(ctx, "cast", {&x}, y);
  ops::check_device("cast", ctx, {{"x", x}, {"the output", y}});
  ops::check_elementwise_output("cast", y, dense_spec(y.dtype(), x.shape(), ctx.device()), {{"x", x}});
  copy(ctx, y, x);
}

}  // namespace burin
