#include <burin/ops/conv2d/conv2d_impl.h>
#include <burin/runtime/config.h>
#include <ops/conv2d_reference.h>

#include <algorithm>
#include <map>

namespace burin::test {
namespace {

using Conv2dSweep = OnEachTarget;

/// Fills a call of given shapes: values, an activation, perhaps a bias and a residual.
void fill(ConvCase& c, Random& random, DType dtype) {
  const Activation activations[] = {
      Activation::sigmoid(),         Activation::tanh(), Activation::gelu(),
      Activation::gelu_tanh(),       Activation::silu(), Activation::leaky_relu(0.125f),
      Activation::clip(-0.5f, 0.75f)};
  if (random.chance(0.5))
    c.params.activation = random.chance(0.6) ? Activation::relu() : activations[random.integer(0, 6)];
  const auto values = [&](std::int64_t count) {
    std::vector<double> all = random.reals(count);
    for (double& value : all) value = rounded(value, dtype);
    return all;
  };
  c.x = values(c.x_shape.count());
  c.w = values(c.w_shape.count());
  if (random.chance(0.5)) c.bias = values(c.w_shape[0]);
  if (random.chance(0.3)) c.residual = values(c.params.output_shape(c.x_shape, c.w_shape).count());
}

/// A valid call with every parameter of its own; about one in four depthwise, one in four grouped.
ConvCase random_case(Random& random, DType dtype) {
  ConvCase c;
  Conv2dParams& p = c.params;
  const std::int64_t group_choice = random.integer(0, 3);
  const bool is_depthwise = group_choice == 0;
  p.groups = group_choice >= 2 ? 1 : random.integer(1, is_depthwise ? 19 : 4);
  const std::int64_t channels = is_depthwise         ? 1
                                : random.chance(0.4) ? 8 * random.integer(1, 3)
                                                     : random.integer(1, 9);
  const std::int64_t rows = is_depthwise         ? random.integer(1, 2)
                            : random.chance(0.3) ? 8 * random.integer(1, 5)
                                                 : random.integer(1, 17);
  const bool is_pointwise = random.chance(0.2);
  const std::int64_t kernel[2] = {is_pointwise ? 1 : random.integer(1, 4),
                                  is_pointwise ? 1 : random.integer(1, 5)};
  for (std::size_t axis = 0; axis < 2; ++axis) {
    p.stride[axis] = random.chance(0.5) ? 1 : random.integer(1, 3);
    p.dilation[axis] = random.chance(0.6) ? 1 : random.integer(1, 3);
  }
  if (random.chance(0.7))
    p.padding = {random.integer(0, 2), random.integer(0, 3), random.integer(0, 2), random.integer(0, 3)};
  if (random.chance(0.5)) {  // what libraries ask for
    p.padding.bottom = p.padding.top;
    p.padding.right = p.padding.left;
  }
  const auto extent = [&](std::size_t axis, std::int64_t before, std::int64_t after) {
    const std::int64_t reach = p.dilation[axis] * (kernel[axis] - 1) + 1;
    const std::int64_t least = std::max<std::int64_t>(reach - before - after, 1);
    return random.integer(least, std::max<std::int64_t>(least, random.chance(0.1) ? 40 : 13));
  };
  c.x_shape = Shape({random.integer(1, 3), channels * p.groups, extent(0, p.padding.top, p.padding.bottom),
                     extent(1, p.padding.left, p.padding.right)});
  c.w_shape = Shape({rows * p.groups, channels, kernel[0], kernel[1]});
  fill(c, random, dtype);
  return c;
}

/// A call by 3 x 3 filters that moves by one: what backends have kernels of their own for.
ConvCase random_3x3_case(Random& random, DType dtype) {
  ConvCase c;
  Conv2dParams& p = c.params;
  p.groups = random.chance(0.7) ? 1 : random.integer(2, 3);
  p.padding = {random.integer(0, 3), random.integer(0, 2), random.integer(0, 1), random.integer(0, 4)};
  const std::int64_t channels = random.chance(0.5) ? 4 * random.integer(1, 9) : random.integer(1, 11);
  const auto extent = [&](std::int64_t before, std::int64_t after) {
    return random.integer(std::max<std::int64_t>(3 - before - after, 1), random.chance(0.8) ? 15 : 70);
  };
  c.x_shape = Shape({random.integer(1, 3), channels * p.groups, extent(p.padding.top, p.padding.bottom),
                     extent(p.padding.left, p.padding.right)});
  c.w_shape = Shape({4 * random.integer(1, 5) * p.groups, channels, 3, 3});
  fill(c, random, dtype);
  return c;
}

std::string describe(const ConvCase& c) {
  const Conv2dParams& p = c.params;
  return fmt::format(
      "x {} w {} stride {} dilation {} padding {} {} {} {} groups {} activation {} bias {} residual {}",
      c.x_shape, c.w_shape, p.stride, p.dilation, p.padding.top, p.padding.left, p.padding.bottom,
      p.padding.right, p.groups, static_cast<int>(p.activation.kind), !c.bias.empty(), !c.residual.empty());
}

/// Every product with inputs rounded to TF32's 10 bits errs by 2^-10 of itself.
constexpr double kTf32 = 0x1p-10;

double tolerance(const ConvReference& expected, std::size_t i, DType dtype, bool tf32) {
  return 1.13 * sum_tolerance(dtype, expected.terms, expected.magnitude[i],
                              expected.y[i]) +  // 1.13: gelu's steepest
         0x1p-22 * (1 + std::abs(expected.y[i])) +
         (tf32 ? 1.13 * kTf32 * expected.magnitude[i] : 0);
}

/// Runs `count` random calls through strided inputs; returns how many were served.
int run_sweep(Context& ctx, DType dtype, int count, std::uint64_t salt,
              ConvCase (*next_case)(Random&, DType) = random_case) {
  Random random(salt);
  int served = 0;
  std::map<std::string, int> refusals;
  for (int i = 0; i < count; ++i) {
    const ConvCase c = next_case(random, dtype);
    const auto strided = [&](const std::vector<double>& values, const Shape& shape) {
      const Tensor dense = to(ctx, from_host(ctx, values, shape), dtype);
      return with_strides(ctx, dense, random.choice(kVariants));
    };
    const Tensor x = strided(c.x, c.x_shape);
    const Tensor w = strided(c.w, c.w_shape);
    const Shape y_shape = c.params.output_shape(c.x_shape, c.w_shape);
    const Tensor bias = c.bias.empty() ? Tensor() : strided(c.bias, Shape({c.w_shape[0]}));
    const Tensor residual = c.residual.empty() ? Tensor() : strided(c.residual, y_shape);
    Tensor y;
    try {
      y = conv2d(ctx, x, w, bias, c.params, residual);
    } catch (const UnsupportedError& error) {
      ++refusals[error.what()];
      continue;
    }
    ++served;
    EXPECT_EQ(y.shape(), y_shape);
    EXPECT_TRUE(y.is_dense_in(x.layout()));
    const ConvReference expected = reference(c);
    const std::vector<double> actual = to_vector<double>(ctx, to(ctx, y, DType::f64));
    expect_near(actual, expected.y,
                [&](std::size_t at) { return tolerance(expected, at, dtype, ctx.precision().allow_tf32); });
    if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << "case " << i << ", seed " << random.seed() << ": " << describe(c);
      break;
    }
  }
  for (const auto& [reason, times] : refusals) std::cout << "  refused " << times << ": " << reason << "\n";
  return served;
}

TEST_P(Conv2dSweep, MatchesTheReference) {
  const int count = sweep(dtype() == DType::f32 ? 2000 : 500);
  const int served = run_sweep(ctx(), dtype(), count, 1);
  if (HasFailure()) return;
  if (backend() == Backend::cudnn)
    EXPECT_GT(served, 0);
  else
    EXPECT_EQ(served, count);
}

TEST_P(Conv2dSweep, ThreeByThreeFiltersMatchTheReference) {
  const int count = sweep(dtype() == DType::f32 ? 600 : 100);
  const int served = run_sweep(ctx(), dtype(), count, 8, random_3x3_case);
  if (HasFailure() || backend() == Backend::cudnn) return;
  EXPECT_EQ(served, count);
}

/// Weights that start at any element of their buffer.
TEST_P(Conv2dSweep, WeightsNeedNoAlignment) {
  Random random(9);
  ConvCase c;
  c.x_shape = Shape({2, 8, 9, 10});
  c.w_shape = Shape({12, 8, 3, 3});
  fill(c, random, dtype());
  const ConvReference expected = reference(c);
  std::vector<double> flat = c.w;
  flat.insert(flat.begin(), 99.0);
  const auto count = static_cast<std::int64_t>(c.w.size());
  const Tensor w = tensor(Shape({count + 1}), flat).slice(0, 1, count + 1).reshape({12, 8, 3, 3});
  const Tensor x = tensor(c.x_shape, c.x);
  const Tensor bias = c.bias.empty() ? Tensor() : tensor(Shape({12}), c.bias);
  const Tensor residual =
      c.residual.empty() ? Tensor() : tensor(c.params.output_shape(c.x_shape, c.w_shape), c.residual);
  const Tensor y = served(ctx(), [&] { return conv2d(ctx(), x, w, bias, c.params, residual); });
  expect_near(values(y), expected.y, [&](std::size_t i) { return tolerance(expected, i, dtype(), false); });
}

TEST_P(Conv2dSweep, Tf32IsWithinItsRounding) {
  if (backend() == Backend::cpu || dtype() != DType::f32) GTEST_SKIP() << "TF32 is CUDA's";
  ctx().set_precision({.allow_tf32 = true});
  EXPECT_GT(run_sweep(ctx(), dtype(), sweep(500), 2), 0);
}

/// Shapes that need several tiles of pixels, blocks of channels and rounds of sums; odd ends everywhere.
TEST_P(Conv2dSweep, LargerShapesMatchToo) {
  struct Sizes {
    Shape x, w;
    Conv2dParams params;
  };
  const Sizes all[] = {{{2, 64, 30, 31}, {47, 64, 3, 3}, {.stride = {2, 1}, .padding = Padding2d::all(1)}},
                       {{1, 512, 7, 7}, {37, 512, 3, 3}, {.padding = Padding2d::all(1)}},
                       {{3, 3, 61, 45}, {20, 3, 7, 7}, {.stride = {2, 2}, .padding = Padding2d::all(3)}},
                       {{1, 1030, 5, 9}, {70, 1030, 1, 1}, {.activation = Activation::relu()}},
                       {{1, 8, 67, 130}, {12, 4, 3, 5}, {.dilation = {2, 3}, .groups = 2}}};
  Random random(7);
  for (const Sizes& sizes : all) {
    ConvCase c{sizes.x, sizes.w, sizes.params, random.reals(sizes.x.count()), random.reals(sizes.w.count()),
               {},      {}};
    for (std::vector<double>* values : {&c.x, &c.w})
      for (double& value : *values) value = rounded(value, dtype());
    const ConvReference expected = reference(c);
    for (const Variant variant : {Variant::contiguous, Variant::channels_last}) {
      const Tensor x = with_strides(ctx(), tensor(c.x_shape, c.x), variant);
      const Tensor w = tensor(c.w_shape, c.w);
      const Tensor y = served(ctx(), [&] { return conv2d(ctx(), x, w, {}, c.params); });
      expect_near(values(y), expected.y,
                  [&](std::size_t i) { return tolerance(expected, i, dtype(), false); });
      if (HasFailure()) FAIL() << describe(c);
    }
  }
}

TEST_P(Conv2dSweep, IsTheSameFromRunToRun) {
  Random random(3);
  const Tensor x = tensor({2, 24, 17, 19}, random.reals(2 * 24 * 17 * 19));
  const Tensor w = tensor({40, 24, 3, 3}, random.reals(40 * 24 * 9));
  const Conv2dParams params{.padding = Padding2d::all(1)};
  const std::vector<double> first = values(conv2d(ctx(), x, w, {}, params));
  for (int i = 0; i < 5; ++i) expect_equal(values(conv2d(ctx(), x, w, {}, params)), first);
}

INSTANTIATE_TEST_SUITE_P(All, Conv2dSweep,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda, Backend::cudnn},
                                                     {DType::f32, DType::f16, DType::bf16})),
                         target_name);

/// Left to itself, every call is served, and with autotuning too.
TEST(Conv2dChoice, ServesEverything) {
  for (const Device device : {Device::cpu(), Device::cuda(0)}) {
    if (device.is_cuda() && cuda_availability().count == 0) GTEST_SKIP() << cuda_availability().reason;
    Context ctx(device);
    EXPECT_EQ(run_sweep(ctx, DType::f32, sweep(100), 4), sweep(100));
    ctx.set_autotune(true);
    EXPECT_EQ(run_sweep(ctx, DType::f32, sweep(20), 5), sweep(20));
  }
}

TEST(Conv2dChoice, IsTheSameOnAnyNumberOfThreads) {
  Random random(6);
  const std::vector<double> x_values = random.reals(512 * 49);
  const std::vector<double> w_values = random.reals(512 * 512 * 9);
  std::vector<double> first;
  for (const int threads : {1, 2, 3, 7, 16}) {
    ContextOptions options;
    options.threads = threads;
    Context ctx(Device::cpu(), std::move(options));
    const Tensor x = to(ctx, from_host(ctx, x_values, {1, 512, 7, 7}), DType::f32);
    const Tensor w = to(ctx, from_host(ctx, w_values, {512, 512, 3, 3}), DType::f32);
    const Tensor y = conv2d(ctx, x, w, {}, {.padding = Padding2d::all(1), .activation = Activation::relu()});
    const std::vector<double> values = to_vector<double>(ctx, to(ctx, y, DType::f64));
    if (first.empty()) first = values;
    expect_equal(values, first);
  }
}

}  // namespace
}  // namespace burin::test
