#include <burin/ops/argmax/argmax.h>
#include <support/test_support.h>

#include <limits>

namespace burin::test {
namespace {

std::vector<double> reference(const std::vector<double>& x, const Shape& shape, int axis) {
  std::int64_t inner = 1;
  for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  const std::int64_t width = shape[axis];
  std::vector<double> y;
  for (std::int64_t line = 0; line < shape.count() / width; ++line) {
    const std::int64_t first = line / inner * inner * width + line % inner;
    const auto at = [&](std::int64_t i) { return x[static_cast<std::size_t>(first + i * inner)]; };
    std::int64_t best = 0;
    for (std::int64_t i = 1; i < width; ++i)
      if (at(i) > at(best) || (std::isnan(at(i)) && !std::isnan(at(best)))) best = i;
    y.push_back(static_cast<double>(best));
  }
  return y;
}

class Argmax : public OnEachTarget {
 protected:
  std::vector<double> line(const std::vector<double>& x) {
    return values(argmax(ctx(), tensor({static_cast<std::int64_t>(x.size())}, x)));
  }
};

INSTANTIATE_TEST_SUITE_P(All, Argmax,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda},
                                                     {DType::f32, DType::f16, DType::bf16, DType::f64,
                                                      DType::i8, DType::u8, DType::i32, DType::i64,
                                                      DType::boolean})),
                         target_name);

TEST_P(Argmax, TakesTheFirstOfEqualMaxima) {
  expect_equal(line({0, 1, 1, 0}), {1});
  expect_equal(line({1, 1, 1}), {0});
  expect_equal(line({0}), {0});
}

TEST_P(Argmax, NanIsTheLargestAndTheFirstOneWins) {
  if (!is_floating(dtype())) GTEST_SKIP() << "an integer has no NaN";
  expect_equal(line({1, kNan, kInf, kNan}), {1});
  expect_equal(line({kNan, 1}), {0});
  expect_equal(line({-kInf, -kInf}), {0});
  for (const std::int64_t width : {5, 100, 3000}) {
    std::vector<double> x(static_cast<std::size_t>(width), 7);
    x[static_cast<std::size_t>(width / 2)] = kNan;
    x.back() = kNan;
    expect_equal(line(x), {static_cast<double>(width / 2)});
  }
}

TEST_P(Argmax, ExtremesOfIntegers) {
  const auto extremes = [&](double low, double high) { expect_equal(line({low, high, low}), {1}); };
  if (dtype() == DType::i8) extremes(-128, 127);
  if (dtype() == DType::u8) extremes(127, 255);
  if (dtype() == DType::i32) extremes(-2147483648.0, 2147483647.0);
  if (dtype() == DType::i64) {
    const std::vector<std::int64_t> x{(std::int64_t{1} << 62), (std::int64_t{1} << 62) + 1,
                                      std::numeric_limits<std::int64_t>::min()};  // equal as f64
    expect_equal(values(argmax(ctx(), from_host(ctx(), x, {3}))), {1});
  }
}

TEST_P(Argmax, KeepsOrDropsTheAxis) {
  const Tensor x = tensor({2, 3}, {0, 1, 0, 1, 0, 0});
  const Tensor dropped = argmax(ctx(), x, {.axis = 1});
  EXPECT_EQ(dropped.shape(), Shape({2}));
  EXPECT_EQ(dropped.dtype(), DType::i64);
  expect_equal(values(dropped), {1, 0});
  const Tensor kept = argmax(ctx(), x, {.axis = 0, .keep_dims = true});
  EXPECT_EQ(kept.shape(), Shape({1, 3}));
  expect_equal(values(kept), {1, 0, 0});
}

TEST_P(Argmax, EmptyInputs) {
  EXPECT_EQ(argmax(ctx(), empty(ctx(), {0, 3}, dtype())).shape(), Shape({0}));
  EXPECT_EQ(argmax(ctx(), empty(ctx(), {3, 0}, dtype()), {.axis = 0, .keep_dims = true}).shape(),
            Shape({1, 0}));
  EXPECT_THROW(argmax(ctx(), empty(ctx(), {3, 0}, dtype())), ShapeError);
}

TEST_P(Argmax, RandomSweep) {
  Random random(1);
  for (int round = 0; round < sweep(dtype() == DType::f32 ? 2000 : 500) && !HasFailure(); ++round) {
    IntList extents;
    const int rank = static_cast<int>(random.integer(1, 4));
    for (int i = 0; i < rank; ++i)
      extents.push_back(random.integer(1, rank == 1 ? 3000 : rank == 2 ? 90 : 9));
    const Shape shape(extents);
    const int axis = static_cast<int>(random.integer(-rank, rank - 1));
    SCOPED_TRACE(fmt::format("round {} of seed {}: x {}, axis {}", round, random.seed(), shape, axis));
    std::vector<double> x = random.integers(shape.count(), 0, random.chance(0.5) ? 3 : 100);  // many ties
    if (is_floating(dtype()) && random.chance(0.3)) x[static_cast<std::size_t>(shape.count() / 2)] = kNan;
    for (double& value : x) value = rounded(value, dtype());
    const Tensor input = with_strides(ctx(), tensor(shape, x), random.choice(kVariants));
    expect_equal(values(argmax(ctx(), input, {.axis = axis})),
                 reference(x, shape, shape.normalize_axis(axis)));
  }
}

TEST(ArgmaxRejects, Arguments) {
  Context ctx;
  const Tensor x = zeros(ctx, {2, 3});
  expect_error<ShapeError>([&] { argmax(ctx, x, {.axis = 2}); },
                           "argmax: axis 2 is out of range for shape [2, 3]");
  expect_error<ShapeError>([&] { argmax(ctx, zeros(ctx, {})); },
                           "argmax: axis -1 is out of range for shape []");
  expect_error<ShapeError>([&] { argmax(ctx, zeros(ctx, {2, 0})); }, "argmax: axis -1 of x [2, 0] is empty");
  expect_error<ShapeError>([&] { argmax(ctx, Tensor()); }, "argmax: x is undefined");
  Tensor wrong = zeros(ctx, {2});
  expect_error<DTypeError>([&] { argmax_into(ctx, wrong, x); }, "argmax: the output is f32 and must be i64");
}

TEST(ArgmaxMemory, FailsCleanly) {
  expect_clean_allocation_failures(Device::cpu(), [](Context& ctx) {
    argmax(ctx, zeros(ctx, {4, 6}).slice(1, 0, 6, 2));
  });
}

}  // namespace
}  // namespace burin::test
