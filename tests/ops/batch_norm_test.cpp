#include <burin/ops/batch_norm/batch_norm.h>
#include <support/test_support.h>

#include <gmock/gmock.h>

namespace burin::test {
namespace {

struct Case {
  Shape shape;
  std::vector<double> x, mean, var, weight, bias;  // weight and bias may be empty
  BatchNormParams params;
};

class BatchNorm : public OnEachTarget {
 protected:
  std::vector<double> rounded_reals(Random& random, std::int64_t count, double low, double high,
                                    DType to_dtype) {
    std::vector<double> values = random.reals(count, low, high);
    for (double& value : values) value = rounded(value, to_dtype);
    return values;
  }

  Case random_case(Random& random, const Shape& shape, DType parameters) {
    const std::int64_t channels = shape[1];
    Case c{shape,
           rounded_reals(random, shape.count(), -3, 3, dtype()),
           rounded_reals(random, channels, -2, 2, parameters),
           rounded_reals(random, channels, 0.05, 4, parameters),
           {},
           {},
           {}};
    if (random.chance(0.7)) c.weight = rounded_reals(random, channels, -2, 2, parameters);
    if (random.chance(0.7)) c.bias = rounded_reals(random, channels, -2, 2, parameters);
    c.params.eps = random.chance(0.5) ? 1e-5f : 0.01f;
    if (random.chance(0.3)) c.params.activation = Activation::relu();
    if (random.chance(0.1)) c.params.activation = Activation::silu();
    return c;
  }

  void expect_normalized(const Tensor& y, const Case& c) {
    const std::int64_t channels = c.shape[1];
    const std::int64_t inner =
        channels == 0 || c.shape[0] == 0 ? 1 : c.shape.count() / (c.shape[0] * channels);
    std::vector<double> expected(c.x.size());
    std::vector<double> magnitude(c.x.size());
    for (std::size_t i = 0; i < c.x.size(); ++i) {
      const auto k = static_cast<std::size_t>(static_cast<std::int64_t>(i) / inner % channels);
      const double scale =
          (c.weight.empty() ? 1 : c.weight[k]) / std::sqrt(c.var[k] + static_cast<double>(c.params.eps));
      const double bias = c.bias.empty() ? 0 : c.bias[k];
      const double y_before = (c.x[i] - c.mean[k]) * scale + bias;
      magnitude[i] = std::abs((c.x[i] - c.mean[k]) * scale) + std::abs(bias);
      expected[i] = y_before;
      if (c.params.activation.kind == ActivationKind::relu) expected[i] = std::max(y_before, 0.0);
      if (c.params.activation.kind == ActivationKind::silu)
        expected[i] = y_before / (1 + std::exp(-y_before));
    }
    expect_near(values(y), expected,
                [&](std::size_t i) { return sum_tolerance(dtype(), 2, magnitude[i], expected[i]); });
  }

  Tensor vector(const std::vector<double>& values, DType of) {
    if (values.empty()) return {};
    return to(ctx(), from_host(ctx(), values, {static_cast<std::int64_t>(values.size())}), of);
  }
};

INSTANTIATE_TEST_SUITE_P(All, BatchNorm,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda},
                                                     {DType::f32, DType::f16, DType::bf16})),
                         target_name);

TEST_P(BatchNorm, RandomShapesAndStrides) {
  Random random;
  const int rounds = sweep(dtype() == DType::f32 ? 2000 : 500);
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    IntList extents;
    const auto rank = random.chance(0.6) ? 4 : random.integer(2, 5);
    for (int axis = 0; axis < rank; ++axis)
      extents.push_back(random.chance(0.02)   ? 0
                        : random.chance(0.15) ? random.integer(1, 33)
                                              : random.integer(1, 6));
    const Shape shape(extents);
    const DType parameters = random.chance(0.5) ? DType::f32 : dtype();
    const Case c = random_case(random, shape, parameters);
    const Tensor mean = shape[1] > 0 ? vector(c.mean, parameters) : empty(ctx(), {0}, parameters);
    const Tensor var = shape[1] > 0 ? vector(c.var, parameters) : empty(ctx(), {0}, parameters);
    const Tensor weight = vector(c.weight, parameters);
    const Tensor bias = vector(c.bias, DType::f32);
    const Tensor x = with_strides(ctx(), tensor(shape, c.x), random.choice(kVariants));
    SCOPED_TRACE(fmt::format("seed {}, round {}: {}", random.seed(), round, shape));
    const Tensor y = batch_norm(ctx(), x, mean, var, weight, bias, c.params);
    EXPECT_EQ(y.shape(), shape);
    EXPECT_EQ(y.layout(), x.layout());
    expect_normalized(y, c);
    Tensor other = empty(ctx(), shape, dtype(),
                         rank == 4 && random.chance(0.5) ? Layout::channels_last : Layout::contiguous);
    batch_norm_into(ctx(), other, x, mean, var, weight, bias, c.params);
    expect_normalized(other, c);
  }
}

TEST_P(BatchNorm, LargePlanesAndManyChannels) {
  Random random(1);
  for (const Shape& shape :
       {Shape{2, 3, 112, 113}, {3, 64, 28, 28}, {2, 259, 7, 9}, {300, 520}, {2, 2048, 1, 3}}) {
    SCOPED_TRACE(to_string(shape));
    const Case c = random_case(random, shape, DType::f32);
    const Tensor x = tensor(shape, c.x);
    for (const Variant variant : {Variant::contiguous, Variant::channels_last})
      expect_normalized(batch_norm(ctx(), with_strides(ctx(), x, variant), vector(c.mean, DType::f32),
                                   vector(c.var, DType::f32), vector(c.weight, DType::f32),
                                   vector(c.bias, DType::f32), c.params),
                        c);
  }
}

TEST_P(BatchNorm, B1_DirectValue) {
  const auto one = [&](double value) { return tensor({1}, {value}); };
  BatchNormParams params;
  params.eps = 1;
  const Tensor y = batch_norm(ctx(), tensor({1, 1, 1, 1}, {2 + 3}), one(5), one(3), one(4), one(1), params);
  expect_equal(values(y), {1});
  expect_equal(values(batch_norm(ctx(), tensor({1, 1}, {7}), one(5), one(3), one(4), one(1), params)), {5});
  expect_equal(values(batch_norm(ctx(), tensor({1, 1}, {7}), one(5), one(3), {}, {}, params)), {1});
}

TEST_P(BatchNorm, C13_ChannelsLastKeepsLayoutAndValues) {
  Random random(2);
  const Shape shape{2, 5, 3, 7};
  const Case c = random_case(random, shape, DType::f32);
  const Tensor x = tensor(shape, c.x);
  const auto run = [&](const Tensor& input) {
    return batch_norm(ctx(), input, vector(c.mean, DType::f32), vector(c.var, DType::f32),
                      vector(c.weight, DType::f32), vector(c.bias, DType::f32), c.params);
  };
  const Tensor last = run(with_strides(ctx(), x, Variant::channels_last));
  EXPECT_TRUE(last.is_channels_last());
  expect_normalized(last, c);
  expect_equal(values(last), values(run(x)));
}

TEST_P(BatchNorm, InPlace) {
  Random random(3);
  const Case c = random_case(random, {3, 4, 2, 5}, DType::f32);
  for (const Variant variant : {Variant::contiguous, Variant::channels_last}) {
    Tensor x = with_strides(ctx(), tensor(c.shape, c.x), variant);
    if (variant == Variant::contiguous) x = clone(ctx(), x);
    batch_norm_into(ctx(), x, x, vector(c.mean, DType::f32), vector(c.var, DType::f32),
                    vector(c.weight, DType::f32), vector(c.bias, DType::f32), c.params);
    expect_normalized(x, c);
  }
}

TEST_P(BatchNorm, RefusesWhatDoesNotFit) {
  const Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor three = tensor({3}, {1, 2, 3});
  const Tensor two = tensor({2}, {1, 2});
  EXPECT_THROW(batch_norm(ctx(), three, three, three), ShapeError);
  EXPECT_THROW(batch_norm(ctx(), x, two, three), ShapeError);
  EXPECT_THROW(batch_norm(ctx(), x, three, tensor({1, 3}, {1, 2, 3})), ShapeError);
  EXPECT_THROW(batch_norm(ctx(), x, three, Tensor()), ShapeError);
  EXPECT_THROW(batch_norm(ctx(), x, three, three, two), ShapeError);
  EXPECT_THROW(batch_norm(ctx(), x, three, three, three, to(ctx(), three, DType::f64)), DTypeError);
  EXPECT_THROW(batch_norm(ctx(), to(ctx(), x, DType::f64), three, three), DTypeError);
  Tensor y = empty(ctx(), {2, 3, 1}, dtype());
  EXPECT_THROW(batch_norm_into(ctx(), y, x, three, three), ShapeError);
  y = empty(ctx(), {2, 6}, dtype()).slice(1, 0, 6, 2);
  EXPECT_THROW(batch_norm_into(ctx(), y, x, three, three), ShapeError);
  y = x;
  EXPECT_THROW(batch_norm_into(ctx(), y, x, x.select(0, 1), three), ShapeError);
  try {
    batch_norm(ctx(), x, three, two);
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr(
                    "batch_norm: var has shape [2] and must have one value for each channel of x (3)"));
  }
}

TEST_P(BatchNorm, FailsCleanlyWhenMemoryRunsOut) {
  expect_clean_allocation_failures(ctx().device(), [&](Context& failing) {
    const Tensor c = full(failing, {3}, 2, dtype());
    batch_norm(failing, full(failing, {2, 3, 2, 2}, 1, dtype()).transpose(2, 3), c, c, c, c);
  });
}

}  // namespace
}  // namespace burin::test
