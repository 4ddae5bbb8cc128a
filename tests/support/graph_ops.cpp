#include <burin/ops/common/check.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <support/fake_cuda.h>
#include <support/graph_ops.h>

#include <cstring>

namespace burin::test {
namespace {

float affine_of(float x, float a, float b) {
  const volatile float product = a * x;  // no fused multiply-add
  return product + b;
}

void check_input(const char* op, const ops::NamedTensor& x) {
  BURIN_CHECK(x.tensor.dtype() == DType::f32, DTypeError, "{}: {} must be f32, got {}", op, x.name,
              name(x.tensor.dtype()));
  BURIN_CHECK(x.tensor.is_contiguous(), ShapeError, "{}: {} must be contiguous", op, x.name);
}

template <class T>
T argument(void** arguments, int index) {
  T value;
  std::memcpy(&value, arguments[index], sizeof value);
  return value;
}

}  // namespace

Tensor affine(Context& ctx, const Tensor& x, float a, float b) {
  ops::check_device("affine", ctx, {{"x", x}});
  Tensor y = empty(ctx, x.shape());
  affine_into(ctx, y, x, a, b);
  return y;
}

void affine_into(Context& ctx, Tensor& y, const Tensor& x, float a, float b) {
  const OpScope scope(ctx, "affine", {&x}, y);
  ops::check_device("affine", ctx, {{"x", x}});
  check_input("affine", {"x", x});
  ops::check_elementwise_output("affine", y, dense_spec(DType::f32, x.shape(), ctx.device()), {{"x", x}});
  check_input("affine", {"y", y});
  if (ctx.device().is_cuda())
    return graph_ops_impl::affine(ctx.stream(), y.data<float>(), x.data<float>(), x.count(), a, b);
  for (std::int64_t i = 0; i < x.count(); ++i) y.data<float>()[i] = affine_of(x.data<float>()[i], a, b);
}

Tensor sum2(Context& ctx, const Tensor& x, const Tensor& y) {
  ops::check_device("sum2", ctx, {{"x", x}, {"y", y}});
  Tensor z = empty(ctx, x.shape());
  const OpScope scope(ctx, "sum2", {&x, &y}, z);
  check_input("sum2", {"x", x});
  check_input("sum2", {"y", y});
  BURIN_CHECK(x.shape() == y.shape(), ShapeError, "sum2: shapes of x {} and y {} must be equal", x.shape(),
              y.shape());
  if (ctx.device().is_cuda()) {
    graph_ops_impl::sum2(ctx.stream(), z.data<float>(), x.data<float>(), y.data<float>(), x.count());
    return z;
  }
  for (std::int64_t i = 0; i < x.count(); ++i) z.data<float>()[i] = x.data<float>()[i] + y.data<float>()[i];
  return z;
}

Tensor hidden(Context& ctx, const Tensor& x) {
  ops::check_device("hidden", ctx, {{"x", x}});
  Tensor y = empty(ctx, x.shape(), x.dtype());
  const OpScope scope(ctx, "hidden", {&x}, y);
  check_input("hidden", {"x", x});
  if (x.count() == 0) return y;
  if (ctx.device().is_cuda())
    cuda::copy_bytes(ctx.stream(), y.raw(), x.raw(), x.bytes());
  else
    std::memcpy(y.raw(), x.raw(), x.bytes());
  return y;
}

void register_graph_ops(FakeCuda& fake) {
  constexpr std::size_t kPointer = sizeof(void*);
  constexpr std::size_t kFloat = sizeof(float);
  constexpr std::size_t kCount = sizeof(std::int64_t);
  fake.set_kernel(graph_ops_impl::affine_kernel_address(), {kPointer, kPointer, kCount, kFloat, kFloat},
                  [&fake](const cudaLaunchConfig_t&, void** arguments) {
                    auto* y = argument<float*>(arguments, 0);
                    const auto* x = argument<const float*>(arguments, 1);
                    const auto count = static_cast<std::size_t>(argument<std::int64_t>(arguments, 2));
                    const auto a = argument<float>(arguments, 3);
                    const auto b = argument<float>(arguments, 4);
                    if (!fake.touch(x, count * kFloat) || !fake.touch(y, count * kFloat)) return;
                    for (std::size_t i = 0; i < count; ++i) y[i] = affine_of(x[i], a, b);
                  });
  fake.set_kernel(graph_ops_impl::sum2_kernel_address(), {kPointer, kPointer, kPointer, kCount},
                  [&fake](const cudaLaunchConfig_t&, void** arguments) {
                    auto* z = argument<float*>(arguments, 0);
                    const auto* x = argument<const float*>(arguments, 1);
                    const auto* y = argument<const float*>(arguments, 2);
                    const auto count = static_cast<std::size_t>(argument<std::int64_t>(arguments, 3));
                    for (const float* data : {x, y, static_cast<const float*>(z)})
                      if (!fake.touch(data, count * kFloat)) return;
                    for (std::size_t i = 0; i < count; ++i) z[i] = x[i] + y[i];
                  });
}

}  // namespace burin::test
