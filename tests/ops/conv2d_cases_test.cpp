#include <burin/runtime/config.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <ops/conv2d_reference.h>

#include <limits>

namespace burin::test {
namespace {

using Values = std::vector<double>;

Values ones(std::int64_t count) { return Values(static_cast<std::size_t>(count), 1.0); }
Values counting(std::int64_t count) {
  Values values;
  for (std::int64_t i = 1; i <= count; ++i) values.push_back(static_cast<double>(i));
  return values;
}

/// Small integers, so that every type gives the exact sum.
class Conv2d : public OnEachTarget {
 protected:
  Tensor run(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv2dParams& params = {},
             const Tensor& residual = {}) {
    return served(ctx(), [&] { return conv2d(ctx(), x, w, bias, params, residual); });
  }
  Values conv(const Shape& x_shape, const Values& x, const Shape& w_shape, const Values& w,
              const Conv2dParams& params = {}) {
    return values(run(tensor(x_shape, x), tensor(w_shape, w), {}, params));
  }
  void expect_exact(const Values& actual, Values expected) {
    for (double& value : expected) value = rounded(value, dtype());
    expect_equal(actual, expected);
  }
  /// A row of pixels under a kernel of one row.
  Values row(const Values& x, const Values& w, const Conv2dParams& params) {
    return conv({1, 1, 1, static_cast<std::int64_t>(x.size())}, x,
                {1, 1, 1, static_cast<std::int64_t>(w.size())}, w, params);
  }
  /// cuDNN takes one padding per axis; forced, it must say so, and the rest of such a test is for the others.
  bool refuses_uneven_padding(const Conv2dParams& params) {
    if (backend() != Backend::cudnn) return false;
    try {
      conv2d(ctx(), tensor({1, 1, 4, 4}, ones(16)), tensor({1, 1, 2, 2}, ones(4)), {}, params);
      ADD_FAILURE() << "cuDNN took uneven padding";
    } catch (const UnsupportedError& error) {
      EXPECT_NE(std::string(error.what()).find("padding"), std::string::npos) << error.what();
    }
    return true;
  }
};

TEST_P(Conv2d, C1_PadsEachSideAsAsked) {
  const Conv2dParams params{.padding = {.bottom = 1, .right = 1}};
  if (refuses_uneven_padding(params)) return;
  expect_exact(conv({1, 1, 3, 3}, counting(9), {1, 1, 2, 2}, ones(4), params),
               {12, 16, 9, 24, 28, 15, 15, 17, 9});
}

TEST_P(Conv2d, C3_ExtraPaddingAtEitherEnd) {
  if (refuses_uneven_padding({.padding = {.right = 1}})) return;
  expect_exact(row({1, 2, 3, 4}, {1, 10}, {.padding = {.right = 1}}), {21, 32, 43, 4});
  expect_exact(row({1, 2, 3, 4}, {1, 10}, {.padding = {.left = 1}}), {10, 21, 32, 43});
  expect_exact(row(counting(6), {1, 10, 100}, {.stride = {1, 2}, .padding = {.right = 1}}), {321, 543, 65});
  expect_exact(row(counting(6), {1, 10, 100}, {.stride = {1, 2}, .padding = {.left = 1}}), {210, 432, 654});
}

TEST_P(Conv2d, C5_StrideAboveTheKernel) {
  expect_exact(row(counting(5), {1, 1}, {.stride = {1, 3}}), {3, 9});
}

TEST_P(Conv2d, C6_Dilation) {
  expect_exact(row(counting(5), {1, 1}, {.dilation = {1, 2}}), {4, 6, 8});
  expect_exact(row(counting(7), {1, 1}, {.stride = {1, 2}, .dilation = {1, 2}}), {4, 8, 12});
}

TEST_P(Conv2d, C7_DepthwiseKeepsHeightAndWidthApart) {
  const auto depthwise = [&](const Shape& kernel, std::int64_t channels) {
    Values x, w;
    for (std::int64_t c = 0; c < channels; ++c) {
      for (const double value : counting(6)) x.push_back(value);
      w.insert(w.end(), {1, 10});
    }
    return conv({1, channels, 2, 3}, x, {channels, 1, kernel[0], kernel[1]}, w, {.groups = channels});
  };
  for (const std::int64_t channels : {1, 3, 8}) {
    Values wide, tall;
    for (std::int64_t c = 0; c < channels; ++c) {
      wide.insert(wide.end(), {21, 32, 54, 65});
      tall.insert(tall.end(), {41, 52, 63});
    }
    expect_equal(depthwise({1, 2}, channels), wide);
    expect_equal(depthwise({2, 1}, channels), tall);
  }
}

TEST_P(Conv2d, C9_EmptyBatch) {
  const Tensor y = run(empty(ctx(), {0, 3, 3, 3}, dtype()), tensor({3, 3, 3, 3}, ones(81)));
  EXPECT_EQ(y.shape(), Shape({0, 3, 1, 1}));
  ctx().synchronize();
}

TEST_P(Conv2d, C10_EmptyHeightPadded) {
  const Tensor x = empty(ctx(), {2, 32, 0, 5}, dtype());
  const Tensor w = tensor({32, 32, 2, 2}, ones(32 * 32 * 4));
  const Conv2dParams params{.padding = Padding2d::all(1)};
  Values expected;
  for (int n = 0; n < 2; ++n)
    for (int c = 0; c < 32; ++c)
      for (int i = 0; i < 6; ++i) expected.push_back(c + 1);
  const Tensor y = run(x, w, tensor({32}, counting(32)), params);
  EXPECT_EQ(y.shape(), Shape({2, 32, 1, 6}));
  expect_equal(values(y), expected);
  expect_equal(values(run(x, w, {}, params)), Values(2 * 32 * 6, 0.0));
}

TEST_P(Conv2d, NoChannelsLeaveBiasResidualAndActivation) {
  const Tensor x = empty(ctx(), {1, 0, 2, 2}, dtype());
  const Tensor w = empty(ctx(), {2, 0, 1, 1}, dtype());
  const Tensor bias = tensor({2}, {1, -1});
  const Tensor residual = tensor({1, 2, 2, 2}, {0, 1, -2, 3, 0, 1, 2, 3});
  expect_equal(values(run(x, w, bias, {.activation = Activation::relu()}, residual)),
               {1, 2, 0, 4, 0, 0, 1, 2});
  const Tensor few = tensor({1, 4, 1, 1}, ones(4));
  EXPECT_EQ(run(few, empty(ctx(), {0, 4, 1, 1}, dtype())).shape(), Shape({1, 0, 1, 1}));
}

TEST_P(Conv2d, C11_EveryChannelCountIsExact) {
  if (backend() == Backend::cpu && dtype() != DType::f32) GTEST_SKIP() << "as f32 there";
  for (std::int64_t in = 1; in <= 33; ++in)
    for (std::int64_t out = 1; out <= 33;
         out += in % 3 + 1) {  // every pair of residues, a third of the pairs
      const Values y = conv({1, in, 4, 5}, ones(in * 20), {out, in, 3, 3}, ones(out * in * 9));
      ASSERT_EQ(y, Values(static_cast<std::size_t>(out * 6), rounded(9.0 * static_cast<double>(in), dtype())))
          << in << " to " << out;
    }
}

TEST_P(Conv2d, C13_LayoutsAgree) {
  Random random;
  const Shape x_shape{2, 6, 9, 11};
  const Values x_values = random.integers(x_shape.count(), -4, 4);
  const Tensor x = tensor(x_shape, x_values);
  const Tensor w = tensor({10, 3, 3, 2}, random.integers(180, -4, 4));
  const Conv2dParams params{.stride = {2, 1}, .padding = {1, 1, 1, 1}, .groups = 2};
  const Tensor rows = run(x, w, {}, params);
  const Tensor pixels = run(with_strides(ctx(), x, Variant::channels_last), w, {}, params);
  EXPECT_TRUE(rows.is_contiguous());
  EXPECT_TRUE(pixels.is_channels_last());
  expect_equal(values(pixels), values(rows));
}

TEST_P(Conv2d, C17_NanInWeightsReachesEveryOutputThatUsesIt) {
  Values w = ones(2 * 8 * 9);
  w[static_cast<std::size_t>(8 * 9 + 4)] = kNan;  // the centre tap of output channel 1
  for (const Activation activation : {Activation{}, Activation::relu(), Activation::clip(0, 1e6f)}) {
    if (backend() == Backend::cudnn && activation.kind == ActivationKind::clip) continue;
    const Values y = conv({1, 8, 6, 7}, ones(8 * 42), {2, 8, 3, 3}, w,
                          {.padding = Padding2d::all(1), .activation = activation});
    for (std::size_t i = 0; i < 42; ++i) {
      EXPECT_FALSE(std::isnan(y[i])) << i;
      EXPECT_TRUE(std::isnan(y[42 + i])) << i;
    }
  }
}

TEST_P(Conv2d, C19_FullPrecisionUnlessAskedOtherwise) {
  if (dtype() != DType::f32) GTEST_SKIP() << "a question of f32";
  const double value = 1 + 0x1p-12;
  const Tensor x = tensor({1, 8, 4, 4}, Values(8 * 16, value));
  Values identity(64, 0.0);
  for (std::size_t i = 0; i < 8; ++i) identity[i * 9] = 1;
  const Tensor w = tensor({8, 8, 1, 1}, identity);
  for (const Variant variant : {Variant::contiguous, Variant::channels_last})
    expect_equal(values(run(with_strides(ctx(), x, variant), w)), Values(8 * 16, value));
  expect_exact(conv({1, 1, 1, 1}, {value}, {1, 1, 1, 1}, {1}), {value});
  ctx().set_precision({.allow_tf32 = true});
  for (const double y : values(run(x, w))) EXPECT_TRUE(y == 1 || y == value) << y;
}

TEST_P(Conv2d, ResidualMayBeTheOutput) {
  Random random;
  const Values x = random.integers(5 * 80 * 9, -3, 3);  // 720 terms: more than one round of sums
  ConvCase c{{1, 80, 5, 9},
             {7, 80, 3, 3},
             {.padding = Padding2d::all(1), .activation = Activation::relu()},
             x,
             {},
             {},
             {}};
  c.w = random.integers(7 * 80 * 9, -3, 3);
  c.bias = random.integers(7, -9, 9);
  c.residual = random.integers(7 * 45, -99, 99);
  Tensor y = tensor({1, 7, 5, 9}, c.residual);
  served(ctx(), [&] {
    conv2d_into(ctx(), y, tensor(c.x_shape, c.x), tensor(c.w_shape, c.w), tensor({7}, c.bias), c.params, y);
    return true;
  });
  const Values expected = reference(c).y;
  expect_near(values(y), expected, [&](std::size_t i) {
    return dtype() == DType::f32 ? 0 : epsilon(dtype()) * std::abs(expected[i]);
  });
}

TEST_P(Conv2d, WritesEitherLayout) {
  const Tensor x = tensor({1, 2, 3, 4}, counting(24));
  const Tensor w = tensor({2, 2, 1, 1}, {1, 0, 0, 2});
  const Values expected = values(run(x, w));
  for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
    Tensor y = empty(ctx(), {1, 2, 3, 4}, dtype(), layout);
    served(ctx(), [&] {
      conv2d_into(ctx(), y, x, w);
      return true;
    });
    expect_equal(values(y), expected);
    EXPECT_TRUE(y.is_dense_in(layout));
  }
}

TEST_P(Conv2d, L5_StridesOfSingleElementsDoNotMatter) {
  Tensor x = tensor({1, 1, 1, 6}, counting(6));
  x = Tensor(x.buffer(), x.dtype(), x.shape(), Strides({999, 0, 7, 1}));
  expect_exact(values(run(x, tensor({1, 1, 1, 2}, {1, 10}))), {21, 32, 43, 54, 65});
}

// More than 2^31 elements

class Conv2dLarge : public Conv2d {
 protected:
  void SetUp() override {
    Conv2d::SetUp();
    if (IsSkipped()) return;
    if (backend() == Backend::cpu) GTEST_SKIP() << "for GPUs: minutes on a CPU";
    try {
      hold_ = empty(ctx(), {std::int64_t{24} << 30}, DType::u8);
    } catch (const OutOfMemory&) {
      GTEST_SKIP() << "needs 24 GiB of device memory";
    }
    hold_ = {};
  }

  /// Zeros but for a 3 at the last element, under `w`, whose only 1 is the last channel's centre tap; all
  /// outputs of the last channel are 0 but the last, which is 3.
  void expect_last_only(const Shape& x_shape, std::int64_t kernel, std::int64_t groups, Layout layout) {
    Tensor x = empty(ctx(), x_shape, dtype(), layout);
    copy(ctx(), x, zeros(ctx(), {1, 1, 1, 1}, dtype()));
    const auto last = [](const Tensor& t) {
      Tensor view = t;
      for (int axis = 0; axis < 4; ++axis) view = view.slice(axis, t.extent(axis) - 1, t.extent(axis));
      return view;
    };
    Tensor corner = last(x);
    copy(ctx(), corner, full(ctx(), {1, 1, 1, 1}, 3, dtype()));
    const std::int64_t channels = x_shape[1] / groups;
    Values w_values(static_cast<std::size_t>(groups * channels * kernel * kernel), 0.0);
    w_values[w_values.size() - 1 - static_cast<std::size_t>(kernel * kernel / 2)] = 1;
    const Tensor w = tensor({groups, channels, kernel, kernel}, w_values);
    Tensor y;
    try {
      y = conv2d(ctx(), x, w, {}, {.padding = Padding2d::all(kernel / 2), .groups = groups});
    } catch (const UnsupportedError& error) {
      ASSERT_EQ(backend(), Backend::cudnn) << error.what();
      GTEST_SKIP() << error.what();
    }
    x = {};
    corner = last(y);
    expect_equal(values(corner), {3});
    copy(ctx(), corner, zeros(ctx(), {1, 1, 1, 1}, dtype()));
    // Everything else must be 0: counted on the host, a channel and a band of rows at a time.
    const std::int64_t band = 512;
    for (std::int64_t c = std::max<std::int64_t>(y.extent(1) - 2, 0); c < y.extent(1); ++c)
      for (std::int64_t top = 0; top < y.extent(2); top += band)
        for (const f16 value :
             to_vector<f16>(ctx(), contiguous(ctx(), y.slice(1, c, c + 1).slice(2, top, top + band))))
          ASSERT_EQ(static_cast<float>(value), 0) << "channel " << c << ", rows from " << top;
  }

 private:
  Tensor hold_;
};

TEST_P(Conv2dLarge, C14_IndicesPast31Bits) {
  expect_last_only({1, 514, 2048, 2048}, 3, 1, Layout::contiguous);
}
TEST_P(Conv2dLarge, C14_IndicesPast31BitsChannelsLast) {
  expect_last_only({1, 514, 2048, 2048}, 3, 1, Layout::channels_last);
}
TEST_P(Conv2dLarge, C14_Pointwise) { expect_last_only({1, 514, 2048, 2048}, 1, 1, Layout::contiguous); }
TEST_P(Conv2dLarge, C14_Depthwise) { expect_last_only({1, 514, 2048, 2048}, 3, 514, Layout::contiguous); }
TEST_P(Conv2dLarge, C14_Exactly31Bits) { expect_last_only({1, 128, 4096, 4096}, 3, 1, Layout::contiguous); }

INSTANTIATE_TEST_SUITE_P(All, Conv2d,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda, Backend::cudnn},
                                                     {DType::f32, DType::f16, DType::bf16})),
                         target_name);
INSTANTIATE_TEST_SUITE_P(All, Conv2dLarge,
                         ::testing::ValuesIn(targets({Backend::cuda, Backend::cudnn}, {DType::f16})),
                         target_name);

// What must be refused, and how

TEST(Conv2dErrors, NameTheRuleAndWhatWasGiven) {
  Context ctx;
  const Tensor x = zeros(ctx, {1, 4, 5, 6});
  const Tensor w = zeros(ctx, {6, 4, 3, 3});
  const auto rejected = [&](const std::string& piece, const Tensor& x_in, const Tensor& w_in,
                            const Conv2dParams& p = {}, const Tensor& bias = {},
                            const Tensor& residual = {}) {
    expect_error<ShapeError>([&] { conv2d(ctx, x_in, w_in, bias, p, residual); }, piece);
  };
  rejected("x must be [N, C, H, W] and has shape [4, 5]", zeros(ctx, {4, 5}), w);
  rejected("w must be [K, C / groups, R, S] and has shape [6]", x, zeros(ctx, {6}));
  rejected("channels of x (4) must equal channels of w (3) * groups (1)", x, zeros(ctx, {6, 3, 3, 3}));
  rejected("channels of x (4) must equal channels of w (4) * groups (2)", x, w, {.groups = 2});
  rejected("output channels (5) must be a multiple of groups (2)", x, zeros(ctx, {5, 2, 3, 3}),
           {.groups = 2});
  rejected("groups (0) must be at least 1", x, w, {.groups = 0});
  rejected("the stride of the height (0) must be at least 1", x, w, {.stride = {0, 1}});
  rejected("the stride of the width (-1) must be at least 1", x, w, {.stride = {1, -1}});
  rejected("the dilation of the width (0) must be at least 1", x, w, {.dilation = {1, 0}});
  rejected("the padding of the width (0 and -1) must not be negative", x, w, {.padding = {.right = -1}});
  rejected("the kernel's width (0) must be at least 1", x, zeros(ctx, {6, 4, 3, 0}));
  rejected("the height of the dilated kernel (7) must not exceed that of the padded input (6)", x, w,
           {.dilation = {3, 1}, .padding = {.top = 1}});
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  rejected("the dilation of the height (9223372036854775807) must be below 2^31", x, w,
           {.dilation = {kHuge, 1}});
  rejected("the stride of the width (9223372036854775807) must be below 2^31", x, w, {.stride = {1, kHuge}});
  rejected("the padding of the width (9223372036854775807) must be below 2^31", x, w,
           {.padding = {.left = kHuge}});
  rejected("passes 63 bits", zeros(ctx, {0, 1, kHuge, 1}), zeros(ctx, {1, 1, 1, 1}),
           {.padding = {.bottom = 1}});
  rejected("bias must have shape [6], one value for each output channel, and has [4]", x, w, {},
           zeros(ctx, {4}));
  rejected("residual must have the output's shape [1, 6, 3, 4] and has [6]", x, w, {}, {}, zeros(ctx, {6}));
  rejected("x is undefined", {}, w);
  rejected("w is undefined", x, {});
  EXPECT_THROW(conv2d(ctx, x, w, {}, {.padding = {.top = std::int64_t{1} << 61, .left = 1 << 20}}),
               ShapeError);
}

TEST(Conv2dErrors, TypesDevicesAndOutputs) {
  Context ctx;
  const Tensor x = zeros(ctx, {1, 4, 5, 6});
  const Tensor w = zeros(ctx, {4, 4, 3, 3});
  expect_error<DTypeError>([&] { conv2d(ctx, x, to(ctx, w, DType::f16)); }, "x is f32, w is f16");
  expect_error<DTypeError>([&] { conv2d(ctx, x, w, zeros(ctx, {4}, DType::bf16)); }, "bias is bf16");
  expect_error<DTypeError>([&] { conv2d(ctx, to(ctx, x, DType::i32), to(ctx, w, DType::i32)); },
                           "x is i32 and must be");
  const Tensor elsewhere = Tensor::from_blob(x.buffer()->data(), x.shape(), DType::f32, Device::cuda(0));
  expect_error<DeviceError>([&] { conv2d(ctx, elsewhere, w); }, "x is on cuda:0, the context on cpu");

  const auto into = [&](Tensor y, const Tensor& residual = {}) {
    conv2d_into(ctx, y, x, w, {}, {}, residual);
  };
  expect_error<ShapeError>([&] { into({}); }, "the output is undefined");
  expect_error<ShapeError>([&] { into(zeros(ctx, {1, 4, 3, 3})); }, "the output has shape [1, 4, 3, 3]");
  expect_error<DTypeError>([&] { into(zeros(ctx, {1, 4, 3, 4}, DType::f16)); }, "the output is f16");
  expect_error<ShapeError>([&] { into(zeros(ctx, {1, 4, 3, 8}).slice(3, 0, 8, 2)); }, "must be dense");
  expect_error<ShapeError>([&] { into(zeros(ctx, {1, 1, 3, 4}).expand({1, 4, 3, 4})); }, "internal overlap");
  expect_error<ShapeError>(
      [&] {
        into(x.reshape({120}).slice(0, 0, 48).reshape({1, 4, 3, 4}));
      },
      "aliases x");
  const Tensor pool = zeros(ctx, {96});
  expect_error<ShapeError>(
      [&] {
        into(pool.slice(0, 0, 48).reshape({1, 4, 3, 4}), pool.slice(0, 4, 52).reshape({1, 4, 3, 4}));
      },
      "aliases a part of residual");
}

TEST(Conv2dErrors, FailedAllocationsLeaveNothingBehind) {
  for (const Device device : {Device::cpu(), Device::cuda(0)}) {
    if (device.is_cuda() && cuda_availability().count == 0) GTEST_SKIP() << cuda_availability().reason;
    expect_clean_allocation_failures(device, [](Context& ctx) {
      const Tensor x = zeros(ctx, {1, 8, 5, 6}, DType::f16);
      const Tensor w = zeros(ctx, {8, 8, 3, 3}, DType::f16);
      conv2d(ctx, x.transpose(2, 3), w, zeros(ctx, {8}, DType::f16), {},
             zeros(ctx, {1, 8, 4, 3}, DType::f16));
    });
  }
}

}  // namespace
}  // namespace burin::test
