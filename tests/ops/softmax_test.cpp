#include <burin/ops/softmax/softmax.h>
#include <support/test_support.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace burin::test {
namespace {

struct Expected {
  std::vector<double> values, log_values;
};

/// In long double, line by line.
Expected reference(const std::vector<double>& x, const Shape& shape, int axis) {
  std::int64_t inner = 1;
  for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  const std::int64_t width = shape[axis];
  Expected y{std::vector<double>(x.size()), std::vector<double>(x.size())};
  for (std::int64_t line = 0; line < shape.count() / width; ++line) {
    const std::int64_t first = line / inner * inner * width + line % inner;
    const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(first + i * inner); };
    long double largest = -std::numeric_limits<long double>::infinity();
    for (std::int64_t i = 0; i < width; ++i) largest = std::max<long double>(largest, x[at(i)]);
    long double sum = 0;
    for (std::int64_t i = 0; i < width; ++i) sum += std::exp(x[at(i)] - largest);
    for (std::int64_t i = 0; i < width; ++i) {
      y.values[at(i)] = static_cast<double>(std::exp(x[at(i)] - largest) / sum);
      y.log_values[at(i)] = static_cast<double>(x[at(i)] - largest - std::log(sum));
    }
  }
  return y;
}

class Softmax : public OnEachTarget {
 protected:
  /// Unit of the arithmetic, which is f32 for the half types.
  double arithmetic_epsilon() const { return dtype() == DType::f64 ? 0x1p-53 : 0x1p-24; }
  /// Rounding of a result to the dtype; in f16 also that of its subnormals.
  double rounding(double value) const {
    if (dtype() == DType::f32 || dtype() == DType::f64) return 0;
    return 1.01 * epsilon(dtype()) * std::abs(value) + (dtype() == DType::f16 ? 0x1p-25 : 0x1p-134);
  }
  void expect_softmax(const Tensor& x, int axis) {
    const std::int64_t width = x.extent(axis);
    const std::vector<double> input = values(x);
    const Expected expected = reference(input, x.shape(), x.shape().normalize_axis(axis));
    // An error of half a unit in x - m, of |x - m| <= 64 here, is one of as much in the result, relatively.
    double range = 1;
    for (const double value : input) range = std::max(range, std::abs(value));
    const double relative =
        (2 * range + 8 + 4 * std::sqrt(static_cast<double>(width))) * arithmetic_epsilon();
    const Tensor y = softmax(ctx(), x, {.axis = axis});
    EXPECT_TRUE(y.is_contiguous());
    EXPECT_EQ(y.shape(), x.shape());
    expect_near(values(y), expected.values, [&](std::size_t i) {
      return relative * expected.values[i] + rounding(expected.values[i]) + 0x1p-149;
    });
    expect_near(values(log_softmax(ctx(), x, axis)), expected.log_values, [&](std::size_t i) {
      return relative * (1 + std::abs(expected.log_values[i])) + rounding(expected.log_values[i]);
    });
  }
};

INSTANTIATE_TEST_SUITE_P(All, Softmax,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda},
                                                     {DType::f32, DType::f16, DType::bf16, DType::f64})),
                         target_name);

TEST_P(Softmax, SM1_LargeAndTinyValues) {
  expect_equal(values(softmax(ctx(), tensor({2}, {1000, 1000}))), {0.5, 0.5});
  expect_equal(values(softmax(ctx(), tensor({2}, {-1000, 0}))), {0, 1});
  const std::vector<double> y = values(softmax(ctx(), tensor({3}, {90, 2, -2})));
  EXPECT_EQ(y[0], 1);
  const double tiny = dtype() == DType::f16 ? 0 : std::exp(-88.0);  // a subnormal of f32 and bf16
  EXPECT_NEAR(y[1], tiny, dtype() == DType::bf16 ? 0x1p-134 : 4e-7 * tiny + 0x1p-149);
  expect_near(values(log_softmax(ctx(), tensor({2}, {1000, 0}))), {0, -1000}, [](std::size_t) { return 0; });
}

TEST_P(Softmax, SM2_InfinitiesAndNanSpoilTheirLineOnly) {
  for (const std::int64_t width : {3, 700, 1500, 20000}) {  // every strategy
    for (const int axis : {0, 1}) {
      std::vector<std::vector<double>> lines(5, std::vector<double>(static_cast<std::size_t>(width), 1));
      lines[0].assign(static_cast<std::size_t>(width), -kInf);
      lines[1].back() = kInf;
      lines[2].front() = kNan;
      lines[3].front() = -kInf;
      std::vector<double> x;
      for (const auto& line : lines) x.insert(x.end(), line.begin(), line.end());
      Tensor input = tensor({5, width}, x);
      if (axis == 0) input = contiguous(ctx(), input.transpose(0, 1));
      for (const bool log : {false, true}) {
        Tensor y = softmax(ctx(), input, {.axis = axis, .log = log});
        if (axis == 0) y = y.transpose(0, 1);
        const std::vector<double> got = values(y);
        const auto at = [&](std::int64_t line, std::int64_t i) {
          return got[static_cast<std::size_t>(line * width + i)];
        };
        int wrong = 0;
        for (std::int64_t i = 0; i < width; ++i) {
          for (const std::int64_t spoilt : {0, 1, 2}) wrong += std::isnan(at(spoilt, i)) ? 0 : 1;
          for (const std::int64_t sound : {3, 4}) wrong += std::isnan(at(sound, i)) ? 1 : 0;
        }
        EXPECT_EQ(wrong, 0) << "width " << width << ", axis " << axis << ", log " << log;
        EXPECT_EQ(at(3, 0), log ? -kInf : 0.0);
      }
    }
  }
}

TEST_P(Softmax, SM4_EqualElementsOfEveryWidth) {
  for (std::int64_t width = 1; width <= 4096; ++width) {
    const std::vector<double> y = values(softmax(ctx(), zeros(ctx(), {2, width}, dtype())));
    const double expected = rounded(1.0 / static_cast<double>(width), dtype());
    const auto wrong = std::count_if(y.begin(), y.end(), [&](double value) { return value != expected; });
    ASSERT_EQ(wrong, 0) << "width " << width << ": " << y[0] << " instead of " << expected;
    if (dtype() == DType::f32 || dtype() == DType::f64) {
      const double sum = std::accumulate(y.begin(), y.begin() + width, 0.0);
      ASSERT_NEAR(sum, 1, static_cast<double>(width) * 2 * arithmetic_epsilon());
    }
  }
}

// The 2-d softmax of ONNX opset 12 and before is softmax over a flattened tensor; import does that.
TEST_P(Softmax, SM6_FlattenedAndLastAxis) {
  const Tensor x = zeros(ctx(), {1, 2, 2}, dtype());
  expect_equal(values(softmax(ctx(), x.flatten(1), {.axis = 1})), {0.25, 0.25, 0.25, 0.25});
  expect_equal(values(softmax(ctx(), x)), {0.5, 0.5, 0.5, 0.5});
}

TEST_P(Softmax, WideAndStridedLines) {
  Random random(3);
  for (const Shape& shape :
       {Shape{3, 1000}, Shape{2, 1025}, Shape{1, 12288}, Shape{2, 12289}, Shape{1, 50257}})
    expect_softmax(tensor(shape, random.reals(shape.count(), -8, 8)), -1);
  for (const Shape& shape : {Shape{3000, 3}, Shape{2, 517, 33}, Shape{1, 40, 300}, Shape{2, 19, 5, 7}})
    expect_softmax(tensor(shape, random.reals(shape.count(), -8, 8)), shape.rank() == 2 ? 0 : 1);
}

TEST_P(Softmax, EmptyInputs) {
  for (const Shape& shape : {Shape{0}, Shape{0, 3}, Shape{3, 0}, Shape{2, 0, 4}})
    for (int axis = 0; axis < shape.rank(); ++axis)
      EXPECT_EQ(softmax(ctx(), empty(ctx(), shape, dtype()), {.axis = axis}).shape(), shape);
}

TEST_P(Softmax, RandomSweep) {
  Random random(1);
  for (int round = 0; round < sweep(dtype() == DType::f32 ? 2000 : 500) && !HasFailure(); ++round) {
    IntList extents;
    const int rank = static_cast<int>(random.integer(1, 4));
    for (int i = 0; i < rank; ++i) extents.push_back(random.integer(1, rank == 1 ? 600 : rank == 2 ? 40 : 9));
    const Shape shape(extents);
    const int axis = static_cast<int>(random.integer(-rank, rank - 1));
    const double scale = random.chance(0.3) ? 60 : 3;
    SCOPED_TRACE(fmt::format("round {} of seed {}: x {}, axis {}", round, random.seed(), shape, axis));
    const Tensor x = tensor(shape, random.reals(shape.count(), -scale, scale));
    expect_softmax(with_strides(ctx(), x, random.choice(kVariants)), axis);
  }
}

TEST(SoftmaxRejects, Arguments) {
  Context ctx;
  const Tensor x = zeros(ctx, {2, 3});
  expect_error<ShapeError>([&] { softmax(ctx, x, {.axis = 2}); },
                           "softmax: axis 2 is out of range for shape [2, 3]");
  expect_error<ShapeError>([&] { softmax(ctx, x, {.axis = -3}); }, "softmax: axis -3 is out of range");
  expect_error<ShapeError>([&] { softmax(ctx, zeros(ctx, {})); },
                           "softmax: axis -1 is out of range for shape []");
  expect_error<ShapeError>([&] { softmax(ctx, Tensor()); }, "softmax: x is undefined");
  expect_error<DTypeError>([&] { softmax(ctx, zeros(ctx, {2}, DType::i32)); }, "softmax: x is i32");
  Tensor same = x;
  expect_error<ShapeError>([&] { softmax_into(ctx, same, x); }, "softmax: the output aliases x");
  Tensor transposed = empty(ctx, {1, 2, 3, 4}, DType::f32, Layout::channels_last);
  expect_error<ShapeError>(
      [&] {
        softmax_into(ctx, transposed, zeros(ctx, {1, 2, 3, 4}));
      },
      "must be contiguous");
}

TEST(SoftmaxMemory, FailsCleanly) {
  expect_clean_allocation_failures(Device::cpu(), [](Context& ctx) {
    softmax(ctx, zeros(ctx, {4, 6}, DType::f16).slice(1, 0, 6, 2));
  });
}

}  // namespace
}  // namespace burin::test
