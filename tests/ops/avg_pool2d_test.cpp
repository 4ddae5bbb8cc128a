#include <burin/ops/avg_pool2d/avg_pool2d.h>
#include <support/test_support.h>

#include <limits>

namespace burin::test {
namespace {

AvgPool2dParams square(std::int64_t kernel, std::int64_t stride, std::int64_t padding = 0) {
  return {.kernel = {kernel, kernel}, .stride = {stride, stride}, .padding = Padding2d::all(padding)};
}
AvgPool2dParams row(std::int64_t kernel, std::int64_t stride, std::int64_t padding = 0) {
  return {.kernel = {1, kernel}, .stride = {1, stride}, .padding = {.left = padding, .right = padding}};
}

std::int64_t windows(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t before,
                     std::int64_t after, bool ceil_mode) {
  const std::int64_t padded = in + before + after;
  std::int64_t count = 0;
  while (count * stride + kernel <= padded) ++count;
  const bool covered = (count - 1) * stride + kernel >= padded;
  return ceil_mode && !covered && count * stride < in + before ? count + 1 : count;
}

struct Expected {
  Shape shape;
  std::vector<double> values, tolerances;
};

std::array<std::int64_t, 2> steps(const AvgPool2dParams& p) {
  return p.stride == std::array<std::int64_t, 2>{-1, -1} ? p.kernel : p.stride;
}

/// Walks the padded plane: each tap is in x, in the padding, or beyond both.
Expected reference(DType dtype, const std::vector<double>& x, const Shape& shape, const AvgPool2dParams& p) {
  const std::int64_t height = shape[2];
  const std::int64_t width = shape[3];
  const auto stride = steps(p);
  Expected y;
  y.shape = {shape[0], shape[1],
             windows(height, p.kernel[0], stride[0], p.padding.top, p.padding.bottom, p.ceil_mode),
             windows(width, p.kernel[1], stride[1], p.padding.left, p.padding.right, p.ceil_mode)};
  for (std::int64_t plane = 0; plane < shape[0] * shape[1]; ++plane)
    for (std::int64_t i = 0; i < y.shape[2]; ++i)
      for (std::int64_t j = 0; j < y.shape[3]; ++j) {
        double sum = 0;
        double magnitudes = 0;
        int live = 0;
        int padded = 0;
        for (std::int64_t r = 0; r < p.kernel[0]; ++r)
          for (std::int64_t s = 0; s < p.kernel[1]; ++s) {
            const std::int64_t h = i * stride[0] - p.padding.top + r;
            const std::int64_t w = j * stride[1] - p.padding.left + s;
            if (h >= height + p.padding.bottom || w >= width + p.padding.right) continue;
            ++padded;
            if (h < 0 || h >= height || w < 0 || w >= width) continue;
            ++live;
            const double value = x[static_cast<std::size_t>((plane * height + h) * width + w)];
            sum += value;
            magnitudes += std::abs(value);
          }
        const double divisor = p.count_include_pad ? padded : live;
        y.values.push_back(sum / divisor);
        y.tolerances.push_back(sum_tolerance(dtype, live, magnitudes / divisor, sum / divisor));
      }
  return y;
}

class AvgPool2d : public OnEachTarget {
 protected:
  void expect_pool(const Tensor& x, const AvgPool2dParams& params) {
    const Expected expected = reference(dtype(), values(x), x.shape(), params);
    EXPECT_EQ(params.output_shape(x.shape()), expected.shape);
    const Tensor y = avg_pool2d(ctx(), x, params);
    EXPECT_EQ(y.shape(), expected.shape);
    expect_near(values(y), expected.values, [&](std::size_t i) { return expected.tolerances[i]; });
  }
  void expect_pool(const Shape& shape, const std::vector<double>& x, const AvgPool2dParams& params,
                   const Shape& y_shape, const std::vector<double>& y) {
    const Tensor got = avg_pool2d(ctx(), tensor(shape, x), params);
    EXPECT_EQ(got.shape(), y_shape);
    expect_equal(values(got), y);
  }
};

INSTANTIATE_TEST_SUITE_P(All, AvgPool2d,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda},
                                                     {DType::f32, DType::f16, DType::bf16})),
                         target_name);

TEST_P(AvgPool2d, A1_OverhangDoesNotCount) {
  AvgPool2dParams p = row(2, 2);
  p.ceil_mode = true;
  for (const bool include : {false, true}) {
    p.count_include_pad = include;
    expect_pool({1, 1, 1, 3}, {2, 4, 9}, p, {1, 1, 1, 2}, {3, 9});
  }
}

TEST_P(AvgPool2d, A4_CeilModeDropsAWindowInTheTrailingPadding) {
  AvgPool2dParams p = row(4, 4, 2);
  p.ceil_mode = true;
  expect_pool({1, 1, 1, 9}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, p, {1, 1, 1, 3}, {1, 1, 1});
}

TEST_P(AvgPool2d, A5_DivisorsOfPaddingAndOverhang) {
  AvgPool2dParams p = square(3, 2, 1);
  p.ceil_mode = true;
  p.count_include_pad = true;
  const std::vector<double> counts{3, 3, 3, 2};
  const std::vector<double> live{2, 3, 3, 1};
  std::vector<double> expected;
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = 0; j < 4; ++j)
      expected.push_back(rounded(live[i] * live[j] / (counts[i] * counts[j]), dtype()));
  const Tensor y = avg_pool2d(ctx(), tensor({1, 1, 6, 6}, std::vector<double>(36, 1)), p);
  EXPECT_EQ(y.shape(), Shape({1, 1, 4, 4}));
  expect_near(values(y), expected, [](std::size_t) { return 0x1p-24; });
}

TEST_P(AvgPool2d, C13_LayoutsAgreeBitForBit) {
  Random random(13);
  for (const std::int64_t channels : {1, 3, 8, 32, 70}) {
    const Shape shape{2, channels, 27, 25};
    const Tensor x = tensor(shape, random.reals(shape.count()));
    const Tensor last = with_strides(ctx(), x, Variant::channels_last);
    for (const AvgPool2dParams& p : {square(2, 2), square(3, 2, 1), square(3, 1, 1), square(5, 3, 2)}) {
      const Tensor y = avg_pool2d(ctx(), last, p);
      EXPECT_EQ(y.is_channels_last(), channels > 1);
      expect_equal(values(y), values(avg_pool2d(ctx(), x, p)));
    }
    expect_equal(values(global_avg_pool2d(ctx(), last)), values(global_avg_pool2d(ctx(), x)));
  }
}

TEST_P(AvgPool2d, EmptyInputs) {
  for (const Shape& shape : {Shape{1, 1, 1, 0}, Shape{0, 3, 4, 5}, Shape{2, 0, 4, 5}}) {
    EXPECT_EQ(avg_pool2d(ctx(), empty(ctx(), shape, dtype()), square(1, 1)).shape(), shape);
  }
  EXPECT_EQ(global_avg_pool2d(ctx(), empty(ctx(), {0, 3, 4, 5}, dtype())).shape(), Shape({0, 3, 1, 1}));
}

TEST_P(AvgPool2d, NanStaysInItsWindows) {
  expect_pool({1, 1, 1, 4}, {1, kNan, 2, 4}, row(2, 2), {1, 1, 1, 2}, {kNan, 3});
  const Tensor y = global_avg_pool2d(ctx(), tensor({1, 2, 1, 2}, {kNan, 1, 2, 4}));
  expect_equal(values(y), {kNan, 3});
}

TEST_P(AvgPool2d, SumsInSinglePrecision) {
  // 4096 + 1 + 1 + ...: f16 alone would lose every 1, and bf16 too.
  std::vector<double> x(1024, 1);
  x[0] = 4096;
  const double expected = rounded(5119.0 / 1024, dtype());
  expect_equal(values(global_avg_pool2d(ctx(), tensor({1, 1, 32, 32}, x))), {expected});
  expect_equal(values(avg_pool2d(ctx(), tensor({1, 1, 32, 32}, x), square(32, 1))), {expected});
}

TEST_P(AvgPool2d, WritesIntoEitherLayout) {
  Random random(5);
  const Shape shape{2, 8, 6, 7};
  const Tensor x = tensor(shape, random.integers(shape.count(), -8, 8));
  const std::vector<double> expected = reference(dtype(), values(x), shape, square(2, 2)).values;
  for (const Variant variant : kVariants)
    for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
      Tensor y = empty(ctx(), {2, 8, 3, 3}, dtype(), layout);
      avg_pool2d_into(ctx(), y, with_strides(ctx(), x, variant), square(2, 2));
      expect_equal(values(y), expected);
    }
}

TEST_P(AvgPool2d, RandomSweep) {
  Random random(1);
  for (int round = 0; round < sweep(dtype() == DType::f32 ? 2000 : 500) && !HasFailure();) {
    const auto at_most = [&](std::int64_t high) { return random.integer(1, high); };
    const Shape shape{at_most(3), random.chance(0.3) ? 8 * at_most(2) : at_most(9), at_most(12), at_most(14)};
    AvgPool2dParams p{.kernel = {at_most(4), at_most(5)}};
    if (random.chance(0.3)) p.kernel = {p.kernel[0], p.kernel[0]};
    if (random.chance(0.8)) p.stride = {at_most(4), at_most(4)};
    if (random.chance(0.3)) p.stride = {2, 2};
    if (random.chance(0.6))
      p.padding = {random.integer(0, p.kernel[0] - 1), random.integer(0, p.kernel[1] - 1),
                   random.integer(0, p.kernel[0] - 1), random.integer(0, p.kernel[1] - 1)};
    p.ceil_mode = random.chance(0.4);
    p.count_include_pad = random.chance(0.5);
    if (p.kernel[0] > shape[2] + p.padding.top + p.padding.bottom ||
        p.kernel[1] > shape[3] + p.padding.left + p.padding.right)
      continue;
    ++round;
    SCOPED_TRACE(fmt::format(
        "round {} of seed {}: x {}, kernel {}, stride {}, padding {} {} {} {}, ceil {}, include {}", round,
        random.seed(), shape, p.kernel, steps(p), p.padding.top, p.padding.left, p.padding.bottom,
        p.padding.right, p.ceil_mode, p.count_include_pad));
    const Tensor x = tensor(shape, random.reals(shape.count()));
    expect_pool(with_strides(ctx(), x, random.choice(kVariants)), p);
  }
}

TEST_P(AvgPool2d, GlobalSweep) {
  Random random(2);
  for (int round = 0; round < sweep(500) && !HasFailure(); ++round) {
    const Shape shape{random.integer(1, 3), random.integer(1, 70), random.integer(1, 17),
                      random.integer(1, 15)};
    SCOPED_TRACE(fmt::format("round {} of seed {}: x {}", round, random.seed(), shape));
    const Tensor x = tensor(shape, random.reals(shape.count()));
    const Expected expected = reference(dtype(), values(x), shape, {.kernel = {shape[2], shape[3]}});
    const Tensor y = global_avg_pool2d(ctx(), with_strides(ctx(), x, random.choice(kVariants)));
    EXPECT_EQ(y.shape(), Shape({shape[0], shape[1], 1, 1}));
    expect_near(values(y), expected.values, [&](std::size_t i) { return expected.tolerances[i]; });
  }
}

TEST(AvgPool2dRejects, Arguments) {
  Context ctx;
  const Tensor x = zeros(ctx, {1, 2, 4, 4});
  expect_error<ShapeError>([&] { avg_pool2d(ctx, x, square(5, 1)); },
                           "avg_pool2d: the dilated kernel (5) is larger than the padded input (0 + 4 + 0)");
  expect_error<ShapeError>([&] { avg_pool2d(ctx, x, square(2, 1, 2)); },
                           "must be smaller than the dilated kernel (2)");
  expect_error<ShapeError>([&] { avg_pool2d(ctx, x, square(2, 0)); }, "the stride of the height (0)");
  expect_error<ShapeError>([&] { avg_pool2d(ctx, Tensor(), square(2, 2)); }, "avg_pool2d: x is undefined");
  expect_error<DTypeError>(
      [&] {
        avg_pool2d(ctx, zeros(ctx, {1, 1, 2, 2}, DType::i64), square(2, 2));
      },
      "x is i64");
  Tensor same = x;
  expect_error<ShapeError>([&] { avg_pool2d_into(ctx, same, x, square(1, 1)); }, "the output aliases x");
  expect_error<ShapeError>(
      [&] {
        global_avg_pool2d(ctx, zeros(ctx, {1, 2, 0, 4}));
      },
      "global_avg_pool2d: x has empty planes");
  expect_error<ShapeError>([&] { global_avg_pool2d(ctx, zeros(ctx, {2, 4})); }, "x must be [N, C, H, W]");
  expect_error<DTypeError>([&] { global_avg_pool2d(ctx, zeros(ctx, {1, 1, 2, 2}, DType::u8)); }, "x is u8");
}

TEST(AvgPool2dMemory, FailsCleanly) {
  expect_clean_allocation_failures(Device::cpu(), [](Context& ctx) {
    const Tensor x = zeros(ctx, {2, 3, 9, 8}, DType::bf16).slice(3, 0, 8, 2);
    avg_pool2d(ctx, x, square(2, 2));
    global_avg_pool2d(ctx, x);
  });
}

}  // namespace
}  // namespace burin::test
