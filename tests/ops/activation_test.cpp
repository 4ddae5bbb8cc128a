#include <burin/ops/activation/activation.h>
#include <ops/activation_reference.h>
#include <support/test_support.h>

#include <limits>

namespace burin::test {
namespace {

const Activation kActivations[] = {{},
                                   Activation::relu(),
                                   Activation::sigmoid(),
                                   Activation::tanh(),
                                   Activation::gelu(),
                                   Activation::gelu_tanh(),
                                   Activation::silu(),
                                   Activation::leaky_relu(0.3f),
                                   Activation::clip(-0.75f, 1.5f)};

bool is_exact(const Activation& a) {
  return a.kind == ActivationKind::none || a.kind == ActivationKind::relu || a.kind == ActivationKind::clip;
}

/// A few ulp of f32; the forms with 1 + erf or 1 + tanh cancel below 0, where the error is relative to x.
double tolerance(const Activation& a, DType dtype, double x, double y) {
  if (is_exact(a)) return 0;
  const double compute =
      8 * 0x1p-24 * std::abs(y) + (a.kind == ActivationKind::gelu || a.kind == ActivationKind::gelu_tanh
                                       ? 6 * 0x1p-24 * std::abs(x)
                                       : 0x1p-120);  // exp overflows
  return compute + (dtype == DType::f32 ? 0 : 1.01 * epsilon(dtype) * std::abs(y) + 0x1p-24);
}

class ActivationTest : public OnEachTarget {
 protected:
  std::vector<double> random_values(Random& random, std::int64_t count) {
    std::vector<double> values = random.reals(count, -6, 6);
    for (double& value : values) value = rounded(value, dtype());
    return values;
  }
  void expect_activated(const Tensor& y, const std::vector<double>& x, const Activation& a) {
    std::vector<double> expected = x;
    for (double& value : expected) value = activated(a, value);
    if (is_exact(a))
      for (double& value : expected) value = rounded(value, dtype());
    expect_near(values(y), expected, [&](std::size_t i) { return tolerance(a, dtype(), x[i], expected[i]); });
  }
};

INSTANTIATE_TEST_SUITE_P(All, ActivationTest,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda},
                                                     {DType::f32, DType::f16, DType::bf16})),
                         target_name);

TEST_P(ActivationTest, RandomShapesAndStrides) {
  Random random;
  const int rounds = sweep(dtype() == DType::f32 ? 2000 : 500);
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    IntList extents;
    for (auto rank = random.integer(0, 5); rank > 0; --rank)
      extents.push_back(random.chance(0.03)  ? 0
                        : random.chance(0.1) ? random.integer(1, 40)
                                             : random.integer(1, 6));
    const Shape shape(extents);
    const auto x_values = random_values(random, shape.count());
    const Tensor x = with_strides(ctx(), tensor(shape, x_values), random.choice(kVariants));
    const Activation& a = kActivations[random.integer(0, std::ssize(kActivations) - 1)];
    SCOPED_TRACE(fmt::format("seed {}, round {}: kind {} of {}", random.seed(), round,
                             static_cast<int>(a.kind), shape));
    const Tensor y = activation(ctx(), x, a);
    EXPECT_EQ(y.shape(), shape);
    EXPECT_EQ(y.layout(), x.layout());
    EXPECT_TRUE(y.is_dense_in(y.layout()));
    expect_activated(y, x_values, a);
    Tensor strided = with_strides(ctx(), empty(ctx(), shape, dtype()), random.choice(kVariants));
    activation_into(ctx(), strided, x, a);
    expect_activated(strided, x_values, a);
    Tensor in_place = x;
    activation_into(ctx(), in_place, in_place, a);
    expect_activated(in_place, x_values, a);
  }
}

TEST_P(ActivationTest, AllMagnitudes) {
  std::vector<double> x;
  for (double magnitude = 0x1p-30; magnitude < 120; magnitude *= 1.01)
    for (const double sign : {-1.0, 1.0}) x.push_back(rounded(sign * magnitude, dtype()));
  x.push_back(0);
  for (const Activation& a : kActivations) {
    SCOPED_TRACE(static_cast<int>(a.kind));
    expect_activated(activation(ctx(), tensor({static_cast<std::int64_t>(x.size())}, x), a), x, a);
  }
}

TEST_P(ActivationTest, NanAndInfinities) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor x =
      tensor({17}, {nan, inf, -inf, 0, nan, inf, -inf, 0, nan, inf, -inf, 0, nan, inf, -inf, 0, nan});
  for (const Activation& a : kActivations) {
    const std::vector<double> y = values(activation(ctx(), x, a));
    SCOPED_TRACE(static_cast<int>(a.kind));
    for (const std::size_t i : {0, 4, 8, 12, 16}) EXPECT_TRUE(std::isnan(y[i]));
    EXPECT_EQ(y[1], a.kind == ActivationKind::clip                                        ? 1.5
                    : a.kind == ActivationKind::sigmoid || a.kind == ActivationKind::tanh ? 1
                                                                                          : inf);
    EXPECT_EQ(y[3], a.kind == ActivationKind::sigmoid ? 0.5 : 0);
  }
  expect_equal(values(relu(ctx(), x.slice(0, 0, 4))), {nan, inf, 0, 0});
  expect_equal(values(sigmoid(ctx(), x.slice(0, 0, 4))), {nan, 1, 0, 0.5});
  expect_equal(values(tanh(ctx(), x.slice(0, 0, 4))), {nan, 1, -1, 0});
  expect_equal(values(leaky_relu(ctx(), x.slice(0, 0, 4), 0.5f)), {nan, inf, -inf, 0});
  expect_equal(values(clip(ctx(), x.slice(0, 0, 4), -2, 4)), {nan, 4, -2, 0});
}

TEST_P(ActivationTest, LargeTensorsOfEveryAlignment) {
  Random random(1);
  const auto x_values = random_values(random, 70001);
  const Tensor x = tensor({70001}, x_values);
  for (const int begin : {0, 1, 4}) {
    const std::vector<double> part(x_values.begin() + begin, x_values.end());
    expect_activated(silu(ctx(), x.slice(0, begin, 70001)), part, Activation::silu());
    expect_activated(relu(ctx(), x.slice(0, begin, 70001)), part, Activation::relu());
  }
}

TEST_P(ActivationTest, NamedFunctions) {
  const std::vector<double> x = {-2, -0.5, 0, 0.5, 2, 3};
  const Tensor t = tensor({6}, x);
  expect_activated(relu(ctx(), t), x, Activation::relu());
  expect_activated(sigmoid(ctx(), t), x, Activation::sigmoid());
  expect_activated(tanh(ctx(), t), x, Activation::tanh());
  expect_activated(gelu(ctx(), t), x, Activation::gelu());
  expect_activated(gelu_tanh(ctx(), t), x, Activation::gelu_tanh());
  expect_activated(silu(ctx(), t), x, Activation::silu());
  expect_activated(leaky_relu(ctx(), t), x, Activation::leaky_relu(0.01f));
  expect_activated(clip(ctx(), t, -1, 2), x, Activation::clip(-1, 2));
  // As in ONNX: the upper bound wins where the bounds cross.
  expect_equal(values(clip(ctx(), t, 2, 1)), {1, 1, 1, 1, 1, 1});
}

TEST_P(ActivationTest, RefusesWhatDoesNotFit) {
  const Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  Tensor y = empty(ctx(), {3, 2}, dtype());
  EXPECT_THROW(activation_into(ctx(), y, x, Activation::relu()), ShapeError);
  y = empty(ctx(), {2, 3}, DType::f64);
  EXPECT_THROW(activation_into(ctx(), y, x, Activation::relu()), DTypeError);
  y = tensor({2, 1}, {0, 0}).expand({2, 3});
  EXPECT_THROW(activation_into(ctx(), y, x, Activation::relu()), ShapeError);
  y = tensor({7}, {0, 1, 2, 3, 4, 5, 6});
  Tensor head = y.slice(0, 0, 6);
  EXPECT_THROW(activation_into(ctx(), head, y.slice(0, 1, 7), Activation::relu()), ShapeError);
  EXPECT_THROW(relu(ctx(), Tensor()), ShapeError);
  expect_error<DTypeError>([&] { relu(ctx(), to(ctx(), x, DType::i32)); },
                           "activation: x is i32 and must be");
  if (ctx().device().is_cuda()) {
    Context host;
    EXPECT_THROW(relu(host, x), DeviceError);
  }
}

TEST_P(ActivationTest, FailsCleanlyWhenMemoryRunsOut) {
  expect_clean_allocation_failures(ctx().device(), [&](Context& failing) {
    const Tensor x = full(failing, {3, 4}, 2, dtype());
    silu(failing, x);
    gelu(failing, x.transpose(0, 1));
  });
}

}  // namespace
}  // namespace burin::test
