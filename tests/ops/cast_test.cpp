#include <burin/ops/cast/cast.h>
#include <support/test_support.h>

#include <limits>

namespace burin::test {
namespace {

constexpr DType kAll[] = {DType::f32, DType::f16, DType::bf16, DType::f64,    DType::i8,
                          DType::u8,  DType::i32, DType::i64,  DType::boolean};
class Cast : public OnEachTarget {};

INSTANTIATE_TEST_SUITE_P(All, Cast,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda},
                                                     {DType::f32, DType::f16, DType::bf16, DType::f64,
                                                      DType::i8, DType::u8, DType::i32, DType::i64,
                                                      DType::boolean})),
                         target_name);

/// Straight from the rules of cast.h, without convert.h.
double reference(double x, DType from, DType to) {
  if (to == DType::boolean) return x != 0;
  if (is_floating(to)) return rounded(x, to);
  const auto bound = [&](double low, double high) {
    return std::isnan(x) ? 0 : std::clamp(std::trunc(x), low, high);
  };
  const auto whole = static_cast<std::int64_t>(std::isnan(x) ? 0 : std::clamp(x, -1e15, 1e15));
  switch (to) {
    case DType::i8: return is_floating(from) ? bound(-128, 127) : static_cast<std::int8_t>(whole);
    case DType::u8: return is_floating(from) ? bound(0, 255) : static_cast<std::uint8_t>(whole);
    case DType::i32: return is_floating(from) ? bound(-0x1p31, 0x1p31 - 1) : static_cast<std::int32_t>(whole);
    default: return is_floating(from) ? bound(-0x1p63, 0x1p63) : static_cast<double>(whole);
  }
}

TEST_P(Cast, RandomShapesStridesAndTypes) {
  Random random;
  const int rounds = sweep(dtype() == DType::f32 ? 2000 : 200);
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    IntList extents;
    for (auto rank = random.integer(0, 5); rank > 0; --rank)
      extents.push_back(random.chance(0.03) ? 0 : random.integer(1, 6));
    const Shape shape(extents);
    std::vector<double> x_values = random.reals(shape.count(), -300, 300);
    for (double& value : x_values) value = reference(value, DType::f64, dtype());
    const Tensor x = with_strides(ctx(), tensor(shape, x_values), random.choice(kVariants));
    const DType to_dtype = kAll[random.integer(0, 8)];
    SCOPED_TRACE(fmt::format("seed {}, round {}: {} to {}", random.seed(), round, shape, name(to_dtype)));
    std::vector<double> expected = x_values;
    for (double& value : expected) value = reference(value, dtype(), to_dtype);
    const Tensor y = cast(ctx(), x, {to_dtype});
    EXPECT_EQ(y.dtype(), to_dtype);
    EXPECT_EQ(y.layout(), x.layout());
    expect_equal(values(y), expected);
    Tensor into = with_strides(ctx(), empty(ctx(), shape, to_dtype), random.choice(kVariants));
    cast_into(ctx(), into, x);
    expect_equal(values(into), expected);
  }
}

TEST_P(Cast, ExtremeValues) {
  if (!is_floating(dtype())) GTEST_SKIP() << "only floating types have values outside every integer type";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<double> x = {nan, inf, -inf, -0.0, 0.5, -0.9, 127.5, 128, -128, -129, 255, 256, 60000, -60000};
  if (dtype() != DType::f16) x.insert(x.end(), {0x1p31, -0x1p31, 0x1p33, 0x1p63, -0x1p63, 1e30});
  for (double& value : x) value = rounded(value, dtype());
  for (const DType to_dtype : {DType::i8, DType::u8, DType::i32, DType::i64, DType::boolean}) {
    SCOPED_TRACE(name(to_dtype));
    std::vector<double> expected = x;
    for (double& value : expected) value = reference(value, dtype(), to_dtype);
    expect_equal(values(cast(ctx(), tensor({static_cast<std::int64_t>(x.size())}, x), {to_dtype})), expected);
  }
}

/// Each device has conversions of its own for these.
TEST_P(Cast, EveryPatternOfTheHalfTypes) {
  const auto check = [&]<class T>() {
    std::vector<T> patterns(0x10000);
    std::vector<float> floats(patterns.size());
    std::vector<float> next(patterns.size());
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      patterns[i].bits = static_cast<std::uint16_t>(i);
      floats[i] = static_cast<float>(patterns[i]);
      // Somewhere between two patterns, or half-way.
      next[i] = std::nextafter(floats[i] * 1.0009765625f, 1e30f);
    }
    const Shape shape{0x10000};
    const auto widened =
        to_vector<float>(ctx(), cast(ctx(), from_host(ctx(), patterns, shape), {DType::f32}));
    const auto narrowed = to_vector<T>(ctx(), cast(ctx(), from_host(ctx(), floats, shape), {dtype()}));
    const auto rounded_next = to_vector<T>(ctx(), cast(ctx(), from_host(ctx(), next, shape), {dtype()}));
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      if (std::isnan(floats[i])) {
        ASSERT_TRUE(std::isnan(widened[i]) && std::isnan(static_cast<float>(narrowed[i]))) << i;
        continue;
      }
      ASSERT_EQ(widened[i], floats[i]) << i;
      ASSERT_EQ(narrowed[i].bits, patterns[i].bits) << i;
      ASSERT_EQ(rounded_next[i].bits, T(next[i]).bits) << i;
    }
  };
  if (dtype() == DType::f16)
    check.operator()<f16>();
  else if (dtype() == DType::bf16)
    check.operator()<bf16>();
  else
    GTEST_SKIP() << "not a half type";
}

TEST_P(Cast, SameTypeIsTheSameTensor) {
  const Tensor x = tensor({2, 2}, {1, 0, 1, 0}).transpose(0, 1);
  EXPECT_EQ(cast(ctx(), x, {dtype()}).raw(), x.raw());
  Tensor y = x;
  cast_into(ctx(), y, x);
  expect_equal(values(y), {1, 1, 0, 0});
}

TEST_P(Cast, RefusesWhatDoesNotFit) {
  const Tensor x = tensor({2, 2}, {1, 0, 1, 0});
  Tensor y = empty(ctx(), {4}, dtype());
  EXPECT_THROW(cast_into(ctx(), y, x), ShapeError);
  y = x.transpose(0, 1);
  EXPECT_THROW(cast_into(ctx(), y, x), ShapeError);
  y = Tensor();
  EXPECT_THROW(cast_into(ctx(), y, x), ShapeError);
  EXPECT_THROW(cast(ctx(), Tensor(), {DType::f32}), ShapeError);
  if (ctx().device().is_cuda()) {
    Context host;
    EXPECT_THROW(cast(host, x, {DType::f64}), DeviceError);
  }
}

TEST_P(Cast, FailsCleanlyWhenMemoryRunsOut) {
  expect_clean_allocation_failures(ctx().device(), [&](Context& failing) {
    cast(failing, zeros(failing, {2, 2}, dtype()), {dtype() == DType::f32 ? DType::f16 : DType::f32});
  });
}

}  // namespace
}  // namespace burin::test
