#include <burin/ops/binary/binary.h>
#include <support/test_support.h>

#include <limits>

#include <gmock/gmock.h>

namespace burin::test {
namespace {

constexpr BinaryKind kKinds[] = {BinaryKind::add, BinaryKind::sub, BinaryKind::mul, BinaryKind::div};
/// One operation with one rounding. Rounding f32 results once more to f16 or bf16 is the same (24 >= 2 * 11 +
/// 2).
double reference(BinaryKind kind, double a, double b, DType dtype) {
  double exact = 0;
  switch (kind) {
    case BinaryKind::add: exact = a + b; break;
    case BinaryKind::sub: exact = a - b; break;
    case BinaryKind::mul: exact = a * b; break;
    case BinaryKind::div: exact = is_floating(dtype) ? a / b : (b == 0 ? 0 : std::trunc(a / b)); break;
  }
  if (is_floating(dtype)) return rounded(exact, dtype);
  return with_any_dtype(dtype, "reference", [&]<class T>() {
    return convert<double>(convert<T>(static_cast<std::int64_t>(exact)));
  });
}

/// The element of x (in row-major order) that `index` of `shape` broadcasts from.
std::size_t source_index(const Shape& x, const Shape& shape, std::int64_t index) {
  std::int64_t at = 0;
  std::int64_t step = 1;
  for (int axis = shape.rank() - 1, x_axis = x.rank() - 1; x_axis >= 0; --axis, --x_axis) {
    if (x[x_axis] != 1) at += index % shape[axis] * step;
    index /= shape[axis];
    step *= x[x_axis];
  }
  return static_cast<std::size_t>(at);
}

std::vector<double> reference(BinaryKind kind, const Shape& a_shape, const std::vector<double>& a,
                              const Shape& b_shape, const std::vector<double>& b, const Shape& shape,
                              DType dtype) {
  std::vector<double> y(static_cast<std::size_t>(shape.count()));
  for (std::size_t i = 0; i < y.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    y[i] = reference(kind, a[source_index(a_shape, shape, index)], b[source_index(b_shape, shape, index)],
                     dtype);
  }
  return y;
}

class Binary : public OnEachTarget {
 protected:
  std::vector<double> random_values(Random& random, std::int64_t count) {
    if (!is_floating(dtype())) return random.integers(count, dtype() == DType::u8 ? 0 : -11, 11);
    std::vector<double> values = random.reals(count, -4, 4);
    for (double& value : values) value = rounded(value, dtype());
    return values;
  }
};

INSTANTIATE_TEST_SUITE_P(All, Binary,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda},
                                                     {DType::f32, DType::f16, DType::bf16, DType::f64,
                                                      DType::i8, DType::u8, DType::i32, DType::i64})),
                         target_name);

TEST_P(Binary, RandomShapesBroadcastAndStrides) {
  Random random;
  const int rounds = sweep(dtype() == DType::f32 ? 2000 : 500);
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    IntList full;
    for (auto rank = random.integer(0, 5); rank > 0; --rank)
      full.push_back(random.chance(0.03)  ? 0
                     : random.chance(0.1) ? random.integer(1, 40)
                                          : random.integer(1, 6));
    const auto operand = [&] {
      IntList extents;
      for (int axis = random.chance(0.2) ? static_cast<int>(random.integer(0, full.size())) : 0;
           axis < full.size(); ++axis)
        extents.push_back(random.chance(0.2) ? 1 : full[axis]);
      return Shape(extents);
    };
    const Shape a_shape = operand();
    const Shape b_shape = operand();
    const Shape shape = broadcast("test", a_shape, b_shape);
    const auto a_values = random_values(random, a_shape.count());
    const auto b_values = random_values(random, b_shape.count());
    const Tensor a = with_strides(ctx(), tensor(a_shape, a_values), random.choice(kVariants));
    const Tensor b = with_strides(ctx(), tensor(b_shape, b_values), random.choice(kVariants));
    const BinaryKind kind = kKinds[random.integer(0, 3)];
    SCOPED_TRACE(fmt::format("seed {}, round {}: {} of {} and {}", random.seed(), round, name(kind), a_shape,
                             b_shape));
    const auto expected = reference(kind, a_shape, a_values, b_shape, b_values, shape, dtype());

    const Tensor y = binary(ctx(), a, b, {kind});
    EXPECT_EQ(y.shape(), shape);
    EXPECT_EQ(y.dtype(), dtype());
    EXPECT_TRUE(y.is_dense_in(y.layout()));
    expect_equal(values(y), expected);

    Tensor strided = with_strides(ctx(), empty(ctx(), shape, dtype()), random.choice(kVariants));
    if (!strided.has_internal_overlap()) {
      binary_into(ctx(), strided, a, b, {kind});
      expect_equal(values(strided), expected);
    }
    if (a_shape == shape) {
      Tensor in_place = a;
      binary_into(ctx(), in_place, in_place, b, {kind});
      expect_equal(values(in_place), expected);
    }
  }
}

TEST_P(Binary, LargeOperandsTakeEveryPath) {
  Random random(1);
  struct Case {
    Shape a, b;
  };
  // Dense, a scalar on either side, a row, a column, a channel, an outer product; sizes that are no multiple
  // of a vector.
  for (const Case& c : {Case{{7, 10007}, {7, 10007}},
                        {{70000}, {}},
                        {{}, {70003}},
                        {{130, 520}, {520}},
                        {{129, 511}, {511}},
                        {{130, 520}, {130, 1}},
                        {{2, 3, 64, 48}, {3, 1, 1}},
                        {{300, 1}, {1, 304}},
                        {{2, 1, 160, 3}, {64, 1, 3}}}) {
    SCOPED_TRACE(fmt::format("{} and {}", c.a, c.b));
    const auto a_values = random_values(random, c.a.count());
    const auto b_values = random_values(random, c.b.count());
    const Shape shape = broadcast("test", c.a, c.b);
    const Tensor a = tensor(c.a, a_values);
    const Tensor b = tensor(c.b, b_values);
    for (const BinaryKind kind : kKinds)
      expect_equal(values(binary(ctx(), a, b, {kind})),
                   reference(kind, c.a, a_values, c.b, b_values, shape, dtype()));
  }
}

TEST_P(Binary, UnalignedSlices) {
  Random random(2);
  const auto a_values = random_values(random, 1001);
  const auto b_values = random_values(random, 1001);
  const Tensor a = tensor({1001}, a_values);
  const Tensor b = tensor({1001}, b_values);
  for (const int begin : {0, 1, 2, 3, 8}) {
    const std::vector<double> a_part(a_values.begin() + begin, a_values.end());
    const std::vector<double> b_part(b_values.begin(), b_values.end() - begin);
    const Shape shape{1001 - begin};
    expect_equal(values(add(ctx(), a.slice(0, begin, 1001), b.slice(0, 0, 1001 - begin))),
                 reference(BinaryKind::add, shape, a_part, shape, b_part, shape, dtype()));
  }
}

TEST_P(Binary, C13_ChannelsLastIsBitEqualAndKept) {
  Random random(3);
  const Shape shape{2, 5, 3, 7};
  const Tensor a = tensor(shape, random_values(random, shape.count()));
  const Tensor b = tensor(shape, random_values(random, shape.count()));
  const Tensor bias = tensor({5, 1, 1}, random_values(random, 5));
  const Tensor a_last = with_strides(ctx(), a, Variant::channels_last);
  const Tensor b_last = with_strides(ctx(), b, Variant::channels_last);
  const Tensor y = add(ctx(), a_last, b_last);
  EXPECT_TRUE(y.is_channels_last());
  expect_equal(values(y), values(add(ctx(), a, b)));
  expect_equal(values(add(ctx(), a_last, b)), values(y));
  EXPECT_FALSE(add(ctx(), a_last, b).is_channels_last());
  EXPECT_TRUE(mul(ctx(), bias, a_last).is_channels_last());
  expect_equal(values(mul(ctx(), bias, a_last)), values(mul(ctx(), bias, a)));
}

TEST_P(Binary, E1_RefusesAnExpandedOutput) {
  Tensor y = tensor({1}, {1}).expand({3});
  const Tensor one = tensor({}, {1});
  try {
    add_into(ctx(), y, y, one);
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("add: the output has internal overlap"));
  }
}

TEST_P(Binary, E3_RefusesToBroadcastTheOutput) {
  Tensor x = tensor({2}, {0, 0});
  EXPECT_THROW(add_into(ctx(), x, x, tensor({2, 2}, {1, 1, 1, 1})), ShapeError);
  expect_equal(values(x), {0, 0});
}

TEST_P(Binary, E5_EmptyAndZeroDimensional) {
  EXPECT_EQ(add(ctx(), tensor({0, 3}, {}), tensor({1, 3}, {1, 2, 3})).shape(), Shape({0, 3}));
  EXPECT_EQ(add(ctx(), tensor({2, 0}, {}), tensor({}, {1})).shape(), Shape({2, 0}));
  const Tensor y = add(ctx(), tensor({}, {2}), tensor({}, {3}));
  EXPECT_EQ(y.shape(), Shape());
  expect_equal(values(y), {5});
}

TEST_P(Binary, InPlaceOnEitherSide) {
  Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  add_into(ctx(), x, x, tensor({3}, {1, 0, 1}));
  expect_equal(values(x), {2, 2, 4, 5, 5, 7});
  mul_into(ctx(), x, tensor({2, 1}, {2, 1}), x);
  expect_equal(values(x), {4, 4, 8, 5, 5, 7});
  sub_into(ctx(), x, x, x);
  expect_equal(values(x), {0, 0, 0, 0, 0, 0});
  Tensor column = tensor({2, 3}, {1, 2, 3, 4, 5, 6}).slice(1, 1, 2);
  add_into(ctx(), column, column, column);
  expect_equal(values(column), {4, 10});
}

TEST_P(Binary, RefusesPartialOverlap) {
  const Tensor whole = tensor({6}, {1, 2, 3, 4, 5, 6});
  Tensor y = whole.slice(0, 1, 4);
  EXPECT_THROW(add_into(ctx(), y, whole.slice(0, 0, 3), whole.slice(0, 1, 4)), ShapeError);
  Tensor square = tensor({2, 2}, {1, 2, 3, 4});
  EXPECT_THROW(add_into(ctx(), square, square.transpose(0, 1), square), ShapeError);
  EXPECT_THROW(add_into(ctx(), square, square, square.slice(0, 0, 1)), ShapeError);
  expect_equal(values(whole), {1, 2, 3, 4, 5, 6});
}

TEST_P(Binary, RefusesWhatDoesNotFit) {
  const Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THROW(sub(ctx(), x, tensor({2}, {1, 2})), ShapeError);
  EXPECT_THROW(sub(ctx(), x, Tensor()), ShapeError);
  const DType other = dtype() == DType::f32 ? DType::i32 : DType::f32;
  EXPECT_THROW(sub(ctx(), x, to(ctx(), x, other)), DTypeError);
  const Tensor truth = to(ctx(), x, DType::boolean);
  EXPECT_THROW(sub(ctx(), truth, truth), DTypeError);
  Tensor y = empty(ctx(), {2, 3}, other);
  EXPECT_THROW(sub_into(ctx(), y, x, x), DTypeError);
  Tensor undefined;
  EXPECT_THROW(sub_into(ctx(), undefined, x, x), ShapeError);
  if (ctx().device().is_cuda()) {
    Context host;
    EXPECT_THROW(sub(host, x, x), DeviceError);
  }
  try {
    mul(ctx(), x, tensor({4}, {1, 2, 3, 4}));
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_THAT(error.what(), ::testing::StartsWith("mul: "));
  }
}

TEST_P(Binary, EveryValueOfTheTypeHasAResult) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  if (is_floating(dtype())) {
    const Tensor a = tensor({5}, {1, -1, 0, nan, inf});
    expect_equal(values(div(ctx(), a, tensor({}, {0}))), {inf, -inf, nan, nan, inf});
    expect_equal(values(add(ctx(), a, tensor({}, {-inf}))), {-inf, -inf, -inf, nan, nan});
  } else {
    with_any_dtype(dtype(), "test", [&]<class T>() {
      if constexpr (std::is_integral_v<T>) {
        const T lowest = std::numeric_limits<T>::lowest();
        const T highest = std::numeric_limits<T>::max();
        const T minus_one = static_cast<T>(-1);  // 255 in u8
        const auto pair = [&](T a, T b, BinaryKind kind) {
          if constexpr (!std::is_same_v<T, bool>) {
            const Tensor y = binary(ctx(), from_host(ctx(), std::vector<T>{a}, {1}),
                                    from_host(ctx(), std::vector<T>{b}, {1}), {kind});
            return to_vector<T>(ctx(), y)[0];
          } else {
            return a;
          }
        };
        EXPECT_EQ(pair(highest, T(1), BinaryKind::add), lowest);
        EXPECT_EQ(pair(lowest, T(1), BinaryKind::sub), highest);
        EXPECT_EQ(pair(highest, T(2), BinaryKind::mul), static_cast<T>(-2));
        EXPECT_EQ(pair(highest, T(0), BinaryKind::div), T(0));
        EXPECT_EQ(pair(lowest, minus_one, BinaryKind::div), std::is_signed_v<T> ? lowest : T(0));
        EXPECT_EQ(pair(static_cast<T>(-7), T(2), BinaryKind::div),
                  std::is_signed_v<T> ? static_cast<T>(-3) : T(124));
      }
    });
  }
}

TEST(BinaryOfIntegers, E6_Wraps) {
  Context ctx;
  EXPECT_EQ(to_vector<std::int32_t>(ctx, add(ctx, from_host(ctx, std::vector<std::int32_t>{2147483647}, {1}),
                                             from_host(ctx, std::vector<std::int32_t>{1}, {1})))[0],
            std::numeric_limits<std::int32_t>::lowest());
  EXPECT_EQ(to_vector<std::uint8_t>(ctx, add(ctx, from_host(ctx, std::vector<std::uint8_t>{250}, {1}),
                                             from_host(ctx, std::vector<std::uint8_t>{10}, {1})))[0],
            4);
}

TEST_P(Binary, FailsCleanlyWhenMemoryRunsOut) {
  expect_clean_allocation_failures(ctx().device(), [&](Context& failing) {
    const Tensor a = full(failing, {3, 4}, 2, dtype());
    const Tensor b = full(failing, {4}, 3, dtype());
    mul(failing, a, b);
  });
}

}  // namespace
}  // namespace burin::test
