#include <burin/ops/binary/binary.h>
#include <burin/ops/binary/binary_impl.h>
#include <burin/ops/common/check.h>

namespace burin {
namespace {

Layout output_layout(const Tensor& a, const Tensor& b, const Shape& shape) {
  const bool a_is_full = a.shape() == shape;
  const bool b_is_full = b.shape() == shape;
  const bool channels_last = (a_is_full || b_is_full) && (!a_is_full || a.is_channels_last()) &&
                             (!b_is_full || b.is_channels_last());
  return channels_last ? Layout::channels_last : Layout::contiguous;
}

}  // namespace

Shape BinaryParams::output_shape(const Shape& a, const Shape& b) const { return broadcast(name(kind), a, b); }

Tensor binary(Context& ctx, const Tensor& a, const Tensor& b, const BinaryParams& params) {
  ops::check_device(name(params.kind), ctx, {{"a", a}, {"b", b}});
  const Shape shape = params.output_shape(a.shape(), b.shape());
  Tensor y = empty(ctx, shape, a.dtype(), output_layout(a, b, shape));
  binary_into(ctx, y, a, b, params);
  return y;
}

void binary_into(Context& ctx, Tensor& y, const Tensor& a, const Tensor& b, const BinaryParams& params) {
  const std::string_view op = name(params.kind);
  const OpScope scope(ctx, op.data(), {&a, &b}, y);
  ops::check_device(op, ctx, {{"a", a}, {"b", b}});
  ops::check_same_dtype(op, {{"a", a}, {"b", b}});
  if (a.dtype() == DType::boolean) throw_dtype_not_supported(op, a.dtype());
  const Shape shape = params.output_shape(a.shape(), b.shape());
  ops::check_elementwise_output(op, y, dense_spec(a.dtype(), shape, ctx.device()), {{"a", a}, {"b", b}});
  if (y.count() == 0) return;
  const auto loop =
      make_strided_loop<3>(shape, {y.strides(), broadcast_strides(a, shape), broadcast_strides(b, shape)});
  if (ops::choose(op, ctx) == Backend::cpu) return binary_impl::cpu(ctx, params.kind, y, a, b, loop);
  if constexpr (kHasCuda) binary_impl::cuda(ctx, params.kind, y, a, b, loop);
}

}  // namespace burin
