#include <burin/ops/argmax/argmax.h>
#include <burin/ops/max_pool2d/max_pool2d.h>
#include <support/test_support.h>

#include <limits>
#include <optional>

namespace burin::test {
namespace {

MaxPool2dParams square(std::int64_t kernel, std::int64_t stride) {
  return {.kernel = {kernel, kernel}, .stride = {stride, stride}};
}
MaxPool2dParams row(std::int64_t kernel, std::int64_t stride, std::int64_t left = 0, std::int64_t right = 0) {
  return {.kernel = {1, kernel}, .stride = {1, stride}, .padding = {.left = left, .right = right}};
}

std::array<std::int64_t, 2> steps(const MaxPool2dParams& p) {
  return p.stride == std::array<std::int64_t, 2>{-1, -1} ? p.kernel : p.stride;
}

/// Windows along one axis, counted one by one.
std::int64_t windows(std::int64_t in, std::int64_t span, std::int64_t stride, std::int64_t before,
                     std::int64_t after, bool ceil_mode) {
  const std::int64_t padded = in + before + after;
  std::int64_t count = 0;
  while (count * stride + span <= padded) ++count;
  const bool covered = (count - 1) * stride + span >= padded;
  return ceil_mode && !covered && count * stride < in + before ? count + 1 : count;
}

struct Expected {
  Shape shape;
  std::vector<double> values, indices;
  bool every_window_holds_an_element = true;
};

Expected reference(const std::vector<double>& x, const Shape& shape, const MaxPool2dParams& p) {
  const std::int64_t height = shape[2];
  const std::int64_t width = shape[3];
  const auto stride = steps(p);
  const std::int64_t span_h = (p.kernel[0] - 1) * p.dilation[0] + 1;
  const std::int64_t span_w = (p.kernel[1] - 1) * p.dilation[1] + 1;
  Expected y;
  y.shape = {shape[0], shape[1],
             windows(height, span_h, stride[0], p.padding.top, p.padding.bottom, p.ceil_mode),
             windows(width, span_w, stride[1], p.padding.left, p.padding.right, p.ceil_mode)};
  for (std::int64_t plane = 0; plane < shape[0] * shape[1]; ++plane)
    for (std::int64_t i = 0; i < y.shape[2]; ++i)
      for (std::int64_t j = 0; j < y.shape[3]; ++j) {
        std::int64_t best = -1;
        double largest = 0;
        for (std::int64_t r = 0; r < p.kernel[0]; ++r)
          for (std::int64_t s = 0; s < p.kernel[1]; ++s) {
            const std::int64_t h = i * stride[0] - p.padding.top + r * p.dilation[0];
            const std::int64_t w = j * stride[1] - p.padding.left + s * p.dilation[1];
            if (h < 0 || h >= height || w < 0 || w >= width) continue;
            const double value = x[static_cast<std::size_t>((plane * height + h) * width + w)];
            if (best >= 0 && (std::isnan(largest) || !(std::isnan(value) || value > largest))) continue;
            largest = value;
            best = plane * height * width +
                   (p.index_order == IndexOrder::row_major ? h * width + w : h + w * height);
          }
        if (best < 0) y.every_window_holds_an_element = false;
        y.values.push_back(largest);
        y.indices.push_back(static_cast<double>(best));
      }
  return y;
}

class MaxPool2d : public OnEachTarget {
 protected:
  /// Absent where the forced library says that it cannot.
  std::optional<Tensor> pool(const Tensor& x, const MaxPool2dParams& params) {
    try {
      return max_pool2d(ctx(), x, params);
    } catch (const UnsupportedError&) {
      if (backend() != Backend::cudnn) throw;
      return {};
    }
  }
  bool gives_indices() const { return backend() != Backend::cudnn; }

  /// What this backend makes of a maximum: cuDNN starts from the lowest finite number.
  std::vector<double> as_served(std::vector<double> maxima) {
    if (backend() != Backend::cudnn) return maxima;
    const double lowest = dtype() == DType::f32   ? std::numeric_limits<float>::lowest()
                          : dtype() == DType::f16 ? -65504.0
                                                  : -0x1.FEp127;
    for (double& value : maxima)
      if (value == -kInf) value = lowest;
    return maxima;
  }

  void expect_pool(const Shape& shape, const std::vector<double>& x, const MaxPool2dParams& params,
                   const Shape& y_shape, const std::vector<double>& y) {
    const Tensor input = tensor(shape, x);
    EXPECT_EQ(params.output_shape(shape), y_shape);
    if (const std::optional<Tensor> got = pool(input, params)) {
      EXPECT_EQ(got->shape(), y_shape);
      expect_equal(values(*got), as_served(y));
    }
    if (gives_indices()) expect_equal(values(max_pool2d_with_indices(ctx(), input, params).values), y);
  }

  /// Random windows against the reference; returns how many calls the backend took.
  int run_sweep(int rounds, Random& random) {
    int taken = 0;
    for (int round = 0; round < rounds && !HasFailure();) {
      const auto at_most = [&](std::int64_t high) { return random.integer(1, high); };
      const Shape shape{at_most(3), random.chance(0.3) ? 8 * at_most(2) : at_most(9), at_most(12),
                        at_most(14)};
      MaxPool2dParams p{
          .kernel = {at_most(4), at_most(5)},
          .dilation = {random.chance(0.7) ? 1 : at_most(3), random.chance(0.7) ? 1 : at_most(3)}};
      if (random.chance(0.3)) p.kernel = {p.kernel[0], p.kernel[0]};
      if (random.chance(0.8)) p.stride = {at_most(4), at_most(4)};
      if (random.chance(0.3)) p.stride = {2, 2};
      const std::int64_t span_h = (p.kernel[0] - 1) * p.dilation[0] + 1;
      const std::int64_t span_w = (p.kernel[1] - 1) * p.dilation[1] + 1;
      if (random.chance(0.6))
        p.padding = {random.integer(0, span_h - 1), random.integer(0, span_w - 1),
                     random.integer(0, span_h - 1), random.integer(0, span_w - 1)};
      if (random.chance(0.3)) p.padding = {p.padding.top, p.padding.left, p.padding.top, p.padding.left};
      p.ceil_mode = random.chance(0.3);
      p.index_order = random.chance(0.5) ? IndexOrder::row_major : IndexOrder::column_major;
      if (span_h > shape[2] + p.padding.top + p.padding.bottom ||
          span_w > shape[3] + p.padding.left + p.padding.right)
        continue;
      std::vector<double> x = random.integers(shape.count(), -9, 9);
      for (double& value : x)
        if (random.chance(0.02)) value = random.chance(0.5) ? kNan : -kInf;
      const Expected expected = reference(x, shape, p);
      if (!expected.every_window_holds_an_element) {
        EXPECT_THROW(p.output_shape(shape), ShapeError);
        continue;
      }
      ++round;
      SCOPED_TRACE(fmt::format(
          "round {} of seed {}: x {}, kernel {}, stride {}, dilation {}, padding {} {} {} {}, ceil {}", round,
          random.seed(), shape, p.kernel, steps(p), p.dilation, p.padding.top, p.padding.left,
          p.padding.bottom, p.padding.right, p.ceil_mode));
      EXPECT_EQ(p.output_shape(shape), expected.shape);
      const Tensor input = with_strides(ctx(), tensor(shape, x), random.choice(kVariants));
      if (const std::optional<Tensor> y = pool(input, p)) {
        ++taken;
        EXPECT_EQ(y->layout() == Layout::channels_last, input.is_channels_last() && y->is_channels_last());
        expect_equal(values(*y), as_served(expected.values));
      }
      if (gives_indices()) {
        const MaxPool2dResult y = max_pool2d_with_indices(ctx(), input, p);
        expect_equal(values(y.values), expected.values);
        expect_equal(values(y.indices), expected.indices);
      }
    }
    return taken;
  }
};

INSTANTIATE_TEST_SUITE_P(All, MaxPool2d,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda, Backend::cudnn},
                                                     {DType::f32, DType::f16, DType::bf16})),
                         target_name);

TEST_P(MaxPool2d, M1_CeilModeDropsAWindowThatStartsPastTheInput) {
  MaxPool2dParams p = square(1, 2);
  p.ceil_mode = true;
  expect_pool({1, 1, 1, 4}, {1, 2, 3, 4}, p, {1, 1, 1, 2}, {1, 3});
  EXPECT_EQ(p.output_shape({1, 1, 32, 31}), Shape({1, 1, 16, 16}));
}

TEST_P(MaxPool2d, M3_PaddingIsNeverTheMaximum) {
  expect_pool({1, 1, 1, 1}, {-1}, row(3, 1, 1, 1), {1, 1, 1, 1}, {-1});
  MaxPool2dParams p = row(3, 3, 1, 1);
  p.ceil_mode = true;
  expect_pool({1, 1, 1, 5}, {1, 2, 3, 4, 5}, p, {1, 1, 1, 2}, {2, 5});
}

TEST_P(MaxPool2d, M4_NanReachesEveryChannelFromEveryPosition) {
  for (std::int64_t channels = 1; channels <= 17; ++channels)
    for (std::size_t position = 0; position < 4; ++position)
      for (const Variant variant : {Variant::contiguous, Variant::channels_last}) {
        std::vector<double> window{1, 2, 3};
        window.insert(window.begin() + static_cast<std::ptrdiff_t>(position), kNan);
        std::vector<double> x;
        for (std::int64_t c = 0; c < channels; ++c) x.insert(x.end(), window.begin(), window.end());
        const Tensor input = with_strides(ctx(), tensor({1, channels, 1, 4}, x), variant);
        const std::vector<double> expected(static_cast<std::size_t>(channels), kNan);
        if (const std::optional<Tensor> y = pool(input, row(4, 4))) expect_equal(values(*y), expected);
      }
}

TEST_P(MaxPool2d, M5_IndicesOfInfinityAndNanAreValid) {
  expect_pool({1, 1, 1, 2}, {-kInf, -kInf}, row(2, 1), {1, 1, 1, 1}, {-kInf});
  if (!gives_indices()) return;
  for (const double value : {-kInf, kNan}) {
    const MaxPool2dResult y = max_pool2d_with_indices(ctx(), tensor({1, 1, 1, 2}, {value, value}), row(2, 1));
    expect_equal(values(y.values), {value});
    expect_equal(values(y.indices), {0});
  }
}

TEST_P(MaxPool2d, M8_IndicesCountEarlierPlanes) {
  if (!gives_indices()) {
    EXPECT_THROW(max_pool2d_with_indices(ctx(), tensor({1, 1, 1, 1}, {1}), square(1, 1)), UnsupportedError);
    return;
  }
  const Tensor x = tensor({1, 2, 2, 2}, {1, 2, 3, 4, 8, 7, 6, 5});
  for (const Variant variant : kVariants) {
    const MaxPool2dResult y = max_pool2d_with_indices(ctx(), with_strides(ctx(), x, variant), square(2, 2));
    expect_equal(values(y.values), {4, 8});
    EXPECT_EQ(to_vector<std::int64_t>(ctx(), y.indices), (std::vector<std::int64_t>{3, 4}));
  }
  const Tensor plane = tensor({1, 1, 2, 3}, {1, 9, 2, 3, 4, 5});
  MaxPool2dParams p{.kernel = {2, 3}};
  EXPECT_EQ(to_vector<std::int64_t>(ctx(), max_pool2d_with_indices(ctx(), plane, p).indices).at(0), 1);
  p.index_order = IndexOrder::column_major;
  EXPECT_EQ(to_vector<std::int64_t>(ctx(), max_pool2d_with_indices(ctx(), plane, p).indices).at(0), 2);
}

TEST_P(MaxPool2d, M10_EmptyInputs) {
  for (const Shape& shape : {Shape{1, 1, 1, 0}, Shape{0, 3, 4, 5}, Shape{2, 0, 4, 5}, Shape{1, 2, 0, 5}}) {
    const Tensor x = empty(ctx(), shape, dtype());
    const Tensor y = max_pool2d(ctx(), x, square(1, 1));
    EXPECT_EQ(y.shape(), shape);
    EXPECT_EQ(max_pool2d_with_indices(ctx(), x, square(1, 1)).indices.shape(), shape);
  }
}

TEST_P(MaxPool2d, C13_LayoutsAgreeBitForBit) {
  Random random(13);
  for (const std::int64_t channels : {1, 3, 8, 32, 40}) {
    const Shape shape{2, channels, 27, 25};
    const Tensor x = tensor(shape, random.reals(shape.count()));
    for (MaxPool2dParams p : {square(2, 2), square(3, 2), square(3, 1), square(5, 3)}) {
      p.padding = Padding2d::all(p.kernel[0] / 2);
      const std::optional<Tensor> planar = pool(x, p);
      const std::optional<Tensor> last = pool(with_strides(ctx(), x, Variant::channels_last), p);
      ASSERT_EQ(planar.has_value(), last.has_value());
      if (!planar) continue;
      EXPECT_EQ(last->is_channels_last(), channels > 1);
      expect_equal(values(*last), values(*planar));
      expect_equal(values(*planar), reference(values(x), shape, p).values);
    }
  }
}

TEST_P(MaxPool2d, C15_IndicesPastTwoToThe31) {
  if (backend() != Backend::cuda || dtype() != DType::f16)
    GTEST_SKIP() << "needs 10 GB of a GPU's memory, once";
  Tensor x = zeros(ctx(), {1, 2, 32768, 32769}, dtype());  // 2^31 + 2^16 elements
  Tensor last = x.slice(1, 1, 2).slice(2, 32767, 32768).slice(3, 32768, 32769);
  copy(ctx(), last, full(ctx(), last.shape(), 3, dtype()));
  const MaxPool2dParams p{.kernel = {2, 2}, .padding = {.right = 1}};
  const MaxPool2dResult y = max_pool2d_with_indices(ctx(), x, p);
  EXPECT_EQ(y.values.shape(), Shape({1, 2, 16384, 16385}));
  const auto last_of = [&](const Tensor& t) {
    return values(t.flatten().slice(0, t.count() - 1, t.count()));
  };
  expect_equal(last_of(y.values), {3});
  expect_equal(last_of(y.indices), {static_cast<double>(x.count() - 1)});
  const Tensor flat = max_pool2d(ctx(), x, p).flatten();
  expect_equal(values(argmax(ctx(), flat)), {static_cast<double>(flat.count() - 1)});
  expect_equal(last_of(flat), {3});
}

TEST_P(MaxPool2d, WritesIntoEitherLayout) {
  Random random(5);
  const Shape shape{2, 8, 6, 7};
  const Tensor x = tensor(shape, random.reals(shape.count()));
  const MaxPool2dParams p = square(2, 2);
  const Expected expected = reference(values(x), shape, p);
  for (const Variant variant : kVariants)
    for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
      const Tensor input = with_strides(ctx(), x, variant);
      Tensor y = empty(ctx(), expected.shape, dtype(), layout);
      max_pool2d_into(ctx(), y, input, p);
      expect_equal(values(y), expected.values);
      if (!gives_indices()) continue;
      MaxPool2dResult result{empty(ctx(), expected.shape, dtype(), layout),
                             empty(ctx(), expected.shape, DType::i64, layout)};
      max_pool2d_with_indices_into(ctx(), result, input, p);
      expect_equal(values(result.values), expected.values);
      expect_equal(values(result.indices), expected.indices);
    }
}

TEST_P(MaxPool2d, LayerSizes) {
  Random random(7);
  for (const auto& [shape, p] :
       {std::pair{Shape{2, 32, 26, 26}, square(2, 2)}, {Shape{1, 64, 112, 112}, square(3, 2)}}) {
    MaxPool2dParams params = p;
    if (p.kernel[0] == 3) params.padding = Padding2d::all(1);
    const std::vector<double> x = random.integers(shape.count(), -100, 100);
    const std::vector<double> expected = reference(x, shape, params).values;
    for (const Variant variant : {Variant::contiguous, Variant::channels_last})
      if (const auto y = pool(with_strides(ctx(), tensor(shape, x), variant), params))
        expect_equal(values(*y), expected);
  }
}

TEST_P(MaxPool2d, RandomSweep) {
  Random random(1);
  EXPECT_GT(run_sweep(sweep(dtype() == DType::f32 ? 2000 : 500), random), 0);
}

TEST(MaxPool2dRejects, M7_ADilatedKernelLargerThanThePaddedInput) {
  MaxPool2dParams p = row(3, 2);
  p.dilation = {1, 2};
  for (const bool ceil_mode : {false, true}) {
    p.ceil_mode = ceil_mode;
    expect_error<ShapeError>(
        [&] {
          p.output_shape({1, 1, 1, 4});
        },
        "max_pool2d: the dilated kernel (5) is larger than the padded input (0 + 4 + 0)");
  }
}

TEST(MaxPool2dRejects, Parameters) {
  const Shape x{1, 1, 8, 8};
  const auto reject = [&](const MaxPool2dParams& p, const std::string& piece) {
    expect_error<ShapeError>([&] { p.output_shape(x); }, piece);
  };
  reject({.kernel = {0, 1}}, "the kernel of the height (0) must be at least 1");
  reject({.kernel = {1, 1}, .stride = {1, 0}}, "the stride of the width (0) must be at least 1");
  reject({.kernel = {2, 2}, .dilation = {-1, 1}}, "the dilation of the height (-1)");
  reject({.kernel = {2, 2}, .padding = {.left = -1}}, "the leading padding of the width (-1)");
  reject({.kernel = {2, 2}, .padding = {.bottom = 2}},
         "the padding of the height (0 and 2) must be smaller than the dilated kernel (2)");
  reject({.kernel = {std::int64_t{1} << 40, 1}}, "below 2^31");
  expect_error<ShapeError>([&] { MaxPool2dParams{}.output_shape({1, 8, 8}); }, "x must be [N, C, H, W]");
  const MaxPool2dParams only_padding{
      .kernel = {1, 2}, .dilation = {1, 3}, .padding = {.left = 2, .right = 1}};
  expect_error<ShapeError>([&] { only_padding.output_shape({1, 1, 1, 1}); }, "holds only padding");
}

TEST(MaxPool2dRejects, Tensors) {
  Context ctx;
  const Tensor x = zeros(ctx, {1, 2, 4, 4});
  const MaxPool2dParams p = square(2, 2);
  expect_error<ShapeError>([&] { max_pool2d(ctx, Tensor(), p); }, "max_pool2d: x is undefined");
  expect_error<DTypeError>(
      [&] {
        max_pool2d(ctx, zeros(ctx, {1, 2, 4, 4}, DType::i32), p);
      },
      "max_pool2d: x is i32");
  Tensor small = zeros(ctx, {1, 2, 2, 1});
  expect_error<ShapeError>([&] { max_pool2d_into(ctx, small, x, p); }, "must have [1, 2, 2, 2]");
  Tensor half = zeros(ctx, {1, 2, 2, 2}, DType::f16);
  expect_error<DTypeError>([&] { max_pool2d_into(ctx, half, x, p); }, "the output is f16");
  Tensor same = x;
  expect_error<ShapeError>([&] { max_pool2d_into(ctx, same, x, square(1, 1)); }, "the output aliases x");
  Tensor repeated = zeros(ctx, {1, 1, 2, 2}).expand({1, 2, 2, 2});
  expect_error<ShapeError>([&] { max_pool2d_into(ctx, repeated, x, p); }, "internal overlap");
  MaxPool2dResult mixed{empty(ctx, {1, 2, 2, 2}),
                        empty(ctx, {1, 2, 2, 2}, DType::i64, Layout::channels_last)};
  expect_error<ShapeError>([&] { max_pool2d_with_indices_into(ctx, mixed, x, p); }, "must have one layout");
}

TEST(MaxPool2dMemory, FailsCleanly) {
  expect_clean_allocation_failures(Device::cpu(), [](Context& ctx) {
    const Tensor x = zeros(ctx, {2, 3, 9, 8}).slice(3, 0, 8, 2);
    max_pool2d(ctx, x, square(2, 2));
    max_pool2d_with_indices(ctx, x, square(2, 2));
  });
}

}  // namespace
}  // namespace burin::test
