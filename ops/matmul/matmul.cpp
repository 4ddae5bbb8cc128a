#include <burin/ops/common/check.h>
#include <burin/ops/gemm/product.h>
#include <burin/ops/matmul/matmul.h>

#include <span>

namespace burin {

Shape MatmulParams::output_shape(const Shape& a, const Shape& b) const {
  BURIN_CHECK(a.rank() >= 2 && b.rank() >= 2, ShapeError,
              "matmul: a and b must have rank 2 or more; their shapes are {} and {}", a, b);
  BURIN_CHECK(a.extent(-1) == b.extent(-2), ShapeError,
              "matmul: columns of a ({}) must equal rows of b ({}); their shapes are {} and {}", a.extent(-1),
              b.extent(-2), a, b);
  const auto batch = [](const Shape& x) {
    return Shape(std::span(x.begin(), static_cast<std::size_t>(x.rank() - 2)));
  };
  IntList extents = broadcast("matmul", batch(a), batch(b)).extents();
  extents.push_back(a.extent(-2));
  extents.push_back(b.extent(-1));
  return Shape(extents);
}

namespace {

TensorSpec checked_spec(const Context& ctx, const Tensor& a, const Tensor& b) {
  ops::check_device("matmul", ctx, {{"a", a}, {"b", b}});
  ops::check_same_dtype("matmul", {{"a", a}, {"b", b}});
  ops::check_float_dtype("matmul", {"a", a});
  return dense_spec(a.dtype(), MatmulParams().output_shape(a.shape(), b.shape()), ctx.device());
}

void run(Context& ctx, Tensor& y, const Tensor& a, const Tensor& b) {
  const OpScope scope(ctx, "matmul", {&a, &b}, y);
  gemm::product(ctx, "matmul", y, a, b, {}, {});
}

}  // namespace

Tensor matmul(Context& ctx, const Tensor& a, const Tensor& b) {
  const TensorSpec spec = checked_spec(ctx, a, b);
  Tensor y = empty(ctx, spec.shape, spec.dtype);
  run(ctx, y, a, b);
  return y;
}

void matmul_into(Context& ctx, Tensor& y, const Tensor& a, const Tensor& b) {
  ops::check_output("matmul", y, checked_spec(ctx, a, b), {{"a", a}, {"b", b}});
  BURIN_CHECK(y.is_contiguous(), ShapeError, "matmul: the output must be contiguous");
  run(ctx, y, a, b);
}

}  // namespace burin
