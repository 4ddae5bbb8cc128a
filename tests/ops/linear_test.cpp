#include <burin/ops/linear/linear.h>
#include <ops/activation_reference.h>
#include <support/test_support.h>

#include <array>
#include <limits>

#include <gmock/gmock.h>

namespace burin::test {
namespace {

using ::testing::HasSubstr;

const std::array kActivations{Activation{},
                              Activation::relu(),
                              Activation::sigmoid(),
                              Activation::tanh(),
                              Activation::gelu(),
                              Activation::gelu_tanh(),
                              Activation::silu(),
                              Activation::leaky_relu(0.125f),
                              Activation::clip(-0.5f, 0.75f)};

class Linear : public OnEachTarget {
 protected:
  Tensor random(Random& random, const Shape& shape) { return tensor(shape, random.reals(shape.count())); }

  /// False if the forced backend refuses the call, which only a library may.
  bool expect_linear(const Tensor& x, const Tensor& w, const Tensor& bias, const LinearParams& params) {
    Tensor y;
    try {
      y = linear(ctx(), x, w, bias, params);
    } catch (const UnsupportedError& error) {
      EXPECT_EQ(backend(), Backend::cublaslt) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("linear: cublaslt cannot serve this call"));
      return false;
    }
    EXPECT_EQ(y.shape(), params.output_shape(x.shape(), w.shape()));
    EXPECT_EQ(y.dtype(), dtype());
    EXPECT_TRUE(y.is_contiguous());
    const std::vector<double> left = values(x);
    const std::vector<double> right = values(w);
    const std::vector<double> added =
        bias.defined() ? values(bias) : std::vector<double>(static_cast<std::size_t>(w.extent(0)), 0.0);
    const auto outputs = static_cast<std::size_t>(w.extent(0));
    const auto inputs = static_cast<std::size_t>(w.extent(1));
    std::vector<double> expected(static_cast<std::size_t>(y.count()));
    std::vector<double> magnitudes(expected.size());
    std::vector<double> first_rounding(expected.size());  // of the product, where the bias is added after it
    const bool rounds_twice = backend() == Backend::cublaslt && dtype() != DType::f32 && bias.defined();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::size_t row = i / outputs;
      const std::size_t column = i % outputs;
      double sum = added[column];
      magnitudes[i] = std::abs(sum);
      for (std::size_t k = 0; k < inputs; ++k) {
        const double term = left[row * inputs + k] * right[column * inputs + k];
        sum += term;
        magnitudes[i] += std::abs(term);
      }
      expected[i] = activated(params.activation, sum);
      if (rounds_twice) first_rounding[i] = epsilon(dtype()) * std::abs(sum - added[column]);
    }
    // No slope exceeds 1.13; the functions themselves are good to a few units of the last place.
    expect_near(values(y), expected, [&](std::size_t i) {
      return 1.13 * sum_tolerance(dtype(), x.extent(-1) + 1, magnitudes[i], expected[i]) + first_rounding[i] +
             (params.activation.kind == ActivationKind::none ? 0 : 0x1p-21);
    });
    return true;
  }
};

INSTANTIATE_TEST_SUITE_P(All, Linear,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda, Backend::cublaslt},
                                                     {DType::f32, DType::f16, DType::bf16})),
                         target_name);

TEST_P(Linear, MultipliesByHand) {
  const Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor w = tensor({2, 3}, {1, 0, -1, 2, 1, 0});
  expect_equal(values(linear(ctx(), x, w)), {-2, 4, -2, 13});
  const Tensor bias = tensor({2}, {0.5, -100});
  expect_equal(values(linear(ctx(), x, w, bias)), {-1.5, -96, -1.5, -87});
  expect_equal(values(linear(ctx(), x, w, bias, {Activation::relu()})), {0, 0, 0, 0});
  expect_equal(values(linear(ctx(), x, w, {}, {Activation::relu()})), {0, 4, 0, 13});
}

TEST_P(Linear, L1_NoInputsGiveTheBias) {
  const Tensor bias = tensor({4}, {1, -2, 3, -4});
  const Tensor x = tensor({3, 0}, {});
  const Tensor w = tensor({4, 0}, {});
  expect_equal(values(linear(ctx(), x, w)), std::vector<double>(12, 0.0));
  expect_equal(values(linear(ctx(), x, w, bias)), {1, -2, 3, -4, 1, -2, 3, -4, 1, -2, 3, -4});
  expect_equal(values(linear(ctx(), x, w, bias, {Activation::relu()})), {1, 0, 3, 0, 1, 0, 3, 0, 1, 0, 3, 0});
}

TEST_P(Linear, L1_EmptyExtentsGiveEmptyResults) {
  const Tensor w = tensor({4, 3}, std::vector<double>(12, 1.0));
  const Tensor bias = tensor({4}, {1, 2, 3, 4});
  EXPECT_EQ(linear(ctx(), tensor({0, 3}, {}), w, bias).shape(), Shape({0, 4}));
  EXPECT_EQ(linear(ctx(), tensor({2, 0, 3}, {}), w, bias).shape(), Shape({2, 0, 4}));
  const Tensor x = tensor({2, 3}, std::vector<double>(6, 1.0));
  EXPECT_EQ(linear(ctx(), x, tensor({0, 3}, {}), tensor({0}, {})).shape(), Shape({2, 0}));
}

TEST_P(Linear, L5_StridesOfExtentOneDoNotMatter) {
  const Tensor memory = tensor({8}, {1, 2, 3, 4, 5, 6, 7, 8});
  const auto view = [&](const Shape& shape, const Strides& strides) {
    return Tensor(memory.buffer(), dtype(), shape, strides);
  };
  const Tensor w = tensor({1, 4}, {1, 2, 4, 8});
  for (const std::int64_t odd : {0, 1, 2, 999}) {
    expect_equal(values(linear(ctx(), view({1, 4}, {odd, 1}), w)), {49});
    expect_equal(values(linear(ctx(), w, view({1, 4}, {odd, 1}))), {49});
    expect_equal(values(linear(ctx(), view({2, 1, 4}, {4, odd, 1}), w)), {49, 109});
    expect_equal(values(linear(ctx(), w, view({1, 4}, {odd, 1}), view({1}, {odd}))), {50});
  }
}

TEST_P(Linear, L6_OutputThatAliasesTheInputIsRefused) {
  Tensor x = tensor({5, 5}, std::vector<double>(25, 1.0));
  std::vector<double> diagonal(25, 0.0);
  for (std::size_t i = 0; i < 5; ++i) diagonal[6 * i] = 1;
  const Tensor identity = tensor({5, 5}, diagonal);
  expect_error<ShapeError>([&] { linear_into(ctx(), x, x, identity); }, "linear: the output aliases x");
  expect_error<ShapeError>([&] { linear_into(ctx(), x, identity, x); }, "linear: the output aliases w");
  Tensor rows = x.slice(0, 0, 1);
  expect_error<ShapeError>([&] { linear_into(ctx(), rows, rows, identity, rows.reshape({5})); },
                           "linear: the output aliases");
  expect_equal(values(x), std::vector<double>(25, 1.0));
}

TEST_P(Linear, EveryActivation) {
  Random random;
  int served = 0;
  for (const Activation& activation : kActivations)
    for (const bool has_bias : {false, true}) {
      SCOPED_TRACE(fmt::format("activation {} bias {}", static_cast<int>(activation.kind), has_bias));
      const Tensor x = Linear::random(random, {19, 40});
      const Tensor w = Linear::random(random, {24, 40});
      const Tensor bias = has_bias ? Linear::random(random, {24}) : Tensor();
      served += expect_linear(x, w, bias, {activation});
    }
  EXPECT_GE(served, backend() == Backend::cublaslt ? 4 : 18);
}

TEST_P(Linear, NanPassesThroughEveryActivation) {
  for (const Activation& activation : kActivations)
    for (const std::int64_t outputs : {1, 8, 64}) {
      SCOPED_TRACE(fmt::format("activation {} outputs {}", static_cast<int>(activation.kind), outputs));
      std::vector<double> x(static_cast<std::size_t>(3 * 64), 1.0);
      x[100] = kNan;  // in row 1
      const Tensor w =
          tensor({outputs, 64}, std::vector<double>(static_cast<std::size_t>(outputs * 64), -1.0));
      try {
        const std::vector<double> y = values(linear(ctx(), tensor({3, 64}, x), w, {}, {activation}));
        for (std::size_t i = 0; i < y.size(); ++i)
          ASSERT_EQ(std::isnan(y[i]), static_cast<std::int64_t>(i) / outputs == 1) << "element " << i;
      } catch (const UnsupportedError&) {
        EXPECT_EQ(backend(), Backend::cublaslt);
      }
    }
}

TEST_P(Linear, AnyRankOfX) {
  Random random;
  const Tensor w = Linear::random(random, {6, 8});
  const Tensor bias = Linear::random(random, {6});
  for (const Shape& shape :
       {Shape({8}), Shape({1, 8}), Shape({3, 8}), Shape({2, 3, 8}), Shape({2, 3, 4, 8})}) {
    SCOPED_TRACE(to_string(shape));
    for (const Variant variant : kVariants)
      expect_linear(with_strides(ctx(), Linear::random(random, shape), variant), w, bias, {});
  }
  const Tensor wide = Linear::random(random, {2, 6, 8});
  expect_linear(wide.slice(1, 1, 6, 2), w, bias, {Activation::relu()});  // rows apart, batches apart
  expect_linear(wide.slice(1, 2, 3), w, bias, {});
}

TEST_P(Linear, TheSizesOfClassifiers) {
  Random random;
  expect_linear(Linear::random(random, {10, 1600}), Linear::random(random, {10, 1600}),
                Linear::random(random, {10}), {});
  expect_linear(Linear::random(random, {1, 2048}), Linear::random(random, {1000, 2048}),
                Linear::random(random, {1000}), {Activation::relu()});
  expect_linear(Linear::random(random, {140, 300}), Linear::random(random, {520, 300}),
                Linear::random(random, {520}), {Activation::relu()});
}

TEST_P(Linear, RandomShapes) {
  Random random;
  int served = 0;
  const int cases = sweep(dtype() == DType::f32 ? 2000 : 500);
  for (int i = 0; i < cases && !HasFailure(); ++i) {
    const std::int64_t largest = i % 10 == 0 ? 80 : 20;
    const std::int64_t in = random.integer(i % 17 == 0 ? 0 : 1, 2 * largest);
    const std::int64_t out = random.integer(1, largest);
    IntList extents;
    for (std::int64_t axes = random.integer(0, 3); axes > 0; --axes) extents.push_back(random.integer(1, 5));
    extents.push_back(in);
    const auto operand = [&](const Shape& shape) {
      return with_strides(ctx(), Linear::random(random, shape), random.choice(kVariants));
    };
    const Tensor x = operand(Shape(extents));
    const Tensor w = operand({out, in});
    const Tensor bias = random.chance(0.7) ? operand({out}) : Tensor();
    const LinearParams params{kActivations[static_cast<std::size_t>(random.integer(0, 8))]};
    SCOPED_TRACE(fmt::format("case {} of seed {}: x {} (strides {}) w {} (strides {}) bias {} activation {}",
                             i, random.seed(), x.shape(), to_string(x.strides()), w.shape(),
                             to_string(w.strides()), bias.defined(),
                             static_cast<int>(params.activation.kind)));
    served += expect_linear(x, w, bias, params);
  }
  EXPECT_GT(served, backend() == Backend::cublaslt ? cases / 10 : cases - 1);
}

TEST_P(Linear, RejectsWhatDoesNotFit) {
  const Tensor x = tensor({2, 3}, std::vector<double>(6, 1.0));
  const Tensor w = tensor({4, 3}, std::vector<double>(12, 1.0));
  const Tensor bias = tensor({4}, {1, 2, 3, 4});
  expect_error<ShapeError>([&] { linear(ctx(), x, w.transpose(0, 1)); },
                           "linear: the last extent of x (3) must equal the inputs of w (4)");
  expect_error<ShapeError>([&] { linear(ctx(), x, w.reshape({12})); }, "[out, in]");
  expect_error<ShapeError>([&] { linear(ctx(), tensor({}, {1}), w); }, "scalar");
  expect_error<ShapeError>([&] { linear(ctx(), x, w, bias.slice(0, 0, 3)); }, "linear: bias must be [4]");
  expect_error<ShapeError>([&] { linear(ctx(), x, w, bias.reshape({1, 4})); }, "its shape is [1, 4]");
  expect_error<ShapeError>([&] { linear(ctx(), {}, w); }, "x is undefined");
  expect_error<ShapeError>([&] { linear(ctx(), x, {}); }, "w is undefined");
  expect_error<DTypeError>([&] { linear(ctx(), x, to(ctx(), w, DType::f64)); }, "w is f64");
  expect_error<DTypeError>([&] { linear(ctx(), x, w, to(ctx(), bias, DType::f64)); }, "bias is f64");
  expect_error<DTypeError>([&] { linear(ctx(), to(ctx(), x, DType::f64), to(ctx(), w, DType::f64)); },
                           "linear: x is f64 and must be");
  Tensor narrow = empty(ctx(), {2, 3}, dtype());
  expect_error<ShapeError>([&] { linear_into(ctx(), narrow, x, w); }, "[2, 4]");
}

TEST_P(Linear, FailsCleanlyWhenMemoryRunsOut) {
  const Backend forced = backend();
  const DType dtype = this->dtype();
  expect_clean_allocation_failures(GetParam().device(), [&](Context& fresh) {
    fresh.prefer(forced);
    const Tensor x = full(fresh, {3, 8}, 1, dtype).slice(1, 0, 8, 2);
    const Tensor y = linear(fresh, x, full(fresh, {5, 4}, 1, dtype), full(fresh, {5}, 2, dtype));
    EXPECT_EQ(values_of(fresh, y), std::vector<double>(15, 6.0));
  });
}

}  // namespace
}  // namespace burin::test
