#include <burin/ops/common/check.h>
#include <burin/ops/gemm/product.h>
#include <burin/ops/linear/linear.h>

namespace burin {

Shape LinearParams::output_shape(const Shape& x, const Shape& w) const {
  BURIN_CHECK(x.rank() >= 1, ShapeError, "linear: x must have rank 1 or more; it is a scalar");
  BURIN_CHECK(w.rank() == 2, ShapeError, "linear: w must be [out, in]; its shape is {}", w);
  BURIN_CHECK(x.extent(-1) == w[1], ShapeError,
              "linear: the last extent of x ({}) must equal the inputs of w ({}); their shapes are {} and {}",
              x.extent(-1), w[1], x, w);
  IntList extents = x.extents();
  extents[x.rank() - 1] = w[0];
  return Shape(extents);
}

namespace {

TensorSpec checked_spec(const Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias,
                        const LinearParams& params) {
  ops::check_device("linear", ctx, {{"x", x}, {"w", w}});
  ops::check_same_dtype("linear", {{"x", x}, {"w", w}});
  ops::check_float_dtype("linear", {"x", x});
  const Shape shape = params.output_shape(x.shape(), w.shape());
  if (bias.defined()) {
    ops::check_device("linear", ctx, {{"bias", bias}});
    ops::check_same_dtype("linear", {{"x", x}, {"bias", bias}});
    BURIN_CHECK(bias.shape() == Shape({w.shape()[0]}), ShapeError,
                "linear: bias must be [{}], the outputs of w; its shape is {}", w.shape()[0], bias.shape());
  }
  return dense_spec(x.dtype(), shape, ctx.device());
}

void run(Context& ctx, Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
         const LinearParams& params) {
  const OpScope scope(ctx, "linear", {&x, &w, &bias}, y);
  const bool is_vector = x.rank() == 1;
  Tensor rows = is_vector ? y.unsqueeze(0) : y;
  gemm::product(ctx, "linear", rows, is_vector ? x.unsqueeze(0) : x, w.transpose(0, 1), bias,
                params.activation);
}

}  // namespace

Tensor linear(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias,
              const LinearParams& params) {
  const TensorSpec spec = checked_spec(ctx, x, w, bias, params);
  Tensor y = empty(ctx, spec.shape, spec.dtype);
  run(ctx, y, x, w, bias, params);
  return y;
}

void linear_into(Context& ctx, Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                 const LinearParams& params) {
  ops::check_output("linear", y, checked_spec(ctx, x, w, bias, params), {{"x", x}, {"w", w}, {"bias", bias}});
  BURIN_CHECK(y.is_contiguous(), ShapeError, "linear: the output must be contiguous");
  run(ctx, y, x, w, bias, params);
}

}  // namespace burin
