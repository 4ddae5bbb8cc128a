#include <burin/ops/matmul/matmul.h>
#include <support/test_support.h>

#include <algorithm>
#include <array>
#include <limits>

namespace burin::test {
namespace {

struct Reference {
  std::vector<double> values;
  std::vector<double> magnitudes;  // the same with every factor's sign dropped
};

/// The product in double, element by element. Both operands dense, in row-major order.
Reference reference(const Shape& a_shape, const std::vector<double>& a, const Shape& b_shape,
                    const std::vector<double>& b) {
  const Shape y = MatmulParams().output_shape(a_shape, b_shape);
  const std::int64_t m = a_shape.extent(-2);
  const std::int64_t k = a_shape.extent(-1);
  const std::int64_t n = b_shape.extent(-1);
  const auto matrix_of = [&](const Shape& x, std::int64_t batch) {  // which matrix of x meets y's batch-th
    std::int64_t index = 0;
    std::int64_t scale = 1;
    for (int axis = y.rank() - 3; axis >= 0; --axis) {
      const std::int64_t at = batch % y[axis];
      batch /= y[axis];
      const int own = axis - (y.rank() - x.rank());
      if (own < 0) continue;
      if (x[own] != 1) index += at * scale;
      scale *= x[own];
    }
    return index;
  };
  Reference out;
  for (std::int64_t i = 0; i < y.count(); ++i) {
    const std::int64_t column = i % n;
    const std::int64_t row = i / n % m;
    const std::int64_t a_at = (matrix_of(a_shape, i / (m * n)) * m + row) * k;
    const std::int64_t b_at = matrix_of(b_shape, i / (m * n)) * k * n + column;
    double sum = 0;
    double magnitude = 0;
    for (std::int64_t j = 0; j < k; ++j) {
      const double term = a[static_cast<std::size_t>(a_at + j)] * b[static_cast<std::size_t>(b_at + j * n)];
      sum += term;
      magnitude += std::abs(term);
    }
    out.values.push_back(sum);
    out.magnitudes.push_back(magnitude);
  }
  return out;
}

class Matmul : public OnEachTarget {
 protected:
  void expect_product(const Tensor& a, const Tensor& b) {
    const Reference expected = reference(a.shape(), values(a), b.shape(), values(b));
    const Tensor y = matmul(ctx(), a, b);
    EXPECT_EQ(y.shape(), MatmulParams().output_shape(a.shape(), b.shape()));
    EXPECT_EQ(y.dtype(), dtype());
    EXPECT_TRUE(y.is_contiguous());
    expect_near(values(y), expected.values, [&](std::size_t i) {
      return sum_tolerance(dtype(), a.extent(-1), expected.magnitudes[i], expected.values[i]);
    });
  }
  Tensor random(Random& random, const Shape& shape) { return tensor(shape, random.reals(shape.count())); }
};

INSTANTIATE_TEST_SUITE_P(All, Matmul,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda, Backend::cublaslt},
                                                     {DType::f32, DType::f16, DType::bf16})),
                         target_name);

TEST_P(Matmul, MultipliesByHand) {
  const Tensor a = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor b = tensor({3, 2}, {1, 10, 2, 20, 3, 30});
  expect_equal(values(matmul(ctx(), a, b)), {14, 140, 32, 320});
}

TEST_P(Matmul, L1_NoTermsGiveZeros) {
  const Tensor y = matmul(ctx(), tensor({3, 0}, {}), tensor({0, 4}, {}));
  EXPECT_EQ(y.shape(), Shape({3, 4}));
  expect_equal(values(y), std::vector<double>(12, 0.0));
  const Tensor batch = matmul(ctx(), tensor({2, 5, 0}, {}), tensor({2, 0, 1}, {}));
  expect_equal(values(batch), std::vector<double>(10, 0.0));
  const Tensor views = matmul(ctx(), tensor({0, 3}, {}).transpose(0, 1), tensor({4, 0}, {}).transpose(0, 1));
  expect_equal(values(views), std::vector<double>(12, 0.0));
}

TEST_P(Matmul, L1_EmptyExtentsGiveEmptyResults) {
  const auto zeros_of = [&](const Shape& shape) {
    return tensor(shape, std::vector<double>(static_cast<std::size_t>(shape.count())));
  };
  EXPECT_EQ(matmul(ctx(), zeros_of({0, 3}), zeros_of({3, 4})).shape(), Shape({0, 4}));
  EXPECT_EQ(matmul(ctx(), zeros_of({2, 3}), zeros_of({3, 0})).shape(), Shape({2, 0}));
  EXPECT_EQ(matmul(ctx(), zeros_of({0, 2, 3}), zeros_of({3, 4})).shape(), Shape({0, 2, 4}));
  EXPECT_EQ(matmul(ctx(), zeros_of({0, 2, 3}), zeros_of({1, 3, 4})).shape(), Shape({0, 2, 4}));
  EXPECT_EQ(matmul(ctx(), zeros_of({0, 0}), zeros_of({0, 0})).shape(), Shape({0, 0}));
}

TEST_P(Matmul, L2_TransposedAndPitchedViews) {
  const Tensor b = tensor({2, 2}, {1, 0, 0, 10});
  const Tensor narrow = tensor({2, 2}, {1, 2, 3, 4});
  const Tensor transposed = narrow.transpose(0, 1);
  EXPECT_EQ(transposed.strides(), Strides({1, 2}));
  expect_equal(values(matmul(ctx(), transposed, b)), {1, 30, 2, 40});

  const Tensor wide = tensor({2, 4}, {1, 77, 3, 77, 2, 77, 4, 77});
  const Tensor no_unit_stride = wide.slice(1, 0, 4, 2);
  EXPECT_EQ(no_unit_stride.strides(), Strides({4, 2}));
  expect_equal(values(matmul(ctx(), no_unit_stride, b)), {1, 30, 2, 40});
  expect_equal(values(matmul(ctx(), b, no_unit_stride)), {1, 3, 20, 40});
  const Tensor pitched = tensor({2, 4}, {1, 3, 77, 77, 2, 4, 77, 77}).slice(1, 0, 2);
  expect_equal(values(matmul(ctx(), pitched, b)), {1, 30, 2, 40});
  expect_equal(values(matmul(ctx(), b, pitched.transpose(0, 1))), {1, 2, 30, 40});
}

TEST_P(Matmul, L5_StridesOfExtentOneDoNotMatter) {
  const Tensor memory = tensor({8}, {1, 2, 3, 4, 5, 6, 7, 8});
  const auto view = [&](const Shape& shape, const Strides& strides) {
    return Tensor(memory.buffer(), dtype(), shape, strides);
  };
  const Tensor row = tensor({1, 4}, {1, 2, 4, 8});
  const Tensor column = tensor({4, 1}, {1, 2, 4, 8});
  for (const std::int64_t odd : {0, 1, 2, 999}) {
    expect_equal(values(matmul(ctx(), view({1, 4}, {odd, 1}), column)), {49});
    expect_equal(values(matmul(ctx(), row, view({4, 1}, {1, odd}))), {49});
    expect_equal(values(matmul(ctx(), view({2, 1}, {1, odd}), view({1, 2}, {odd, 1}))), {1, 2, 2, 4});
    expect_equal(values(matmul(ctx(), view({1, 2, 4}, {odd, 4, 1}), column)), {49, 109});
    expect_equal(values(matmul(ctx(), view({2, 1, 4}, {4, odd, 1}), column)), {49, 109});
  }
}

TEST_P(Matmul, C19_SinglePrecisionIsNotRounded) {
  if (dtype() != DType::f32) GTEST_SKIP() << "about f32";
  const double x = 1 + 0x1p-12;
  const std::int64_t extent = 64;  // large enough for a library to reach for its tensor cores
  std::vector<double> diagonal(static_cast<std::size_t>(extent * extent), 0.0);
  for (std::int64_t i = 0; i < extent; ++i) diagonal[static_cast<std::size_t>(i * extent + i)] = 1;
  const Tensor a =
      tensor({extent, extent}, std::vector<double>(static_cast<std::size_t>(extent * extent), x));
  for (const double value : values(matmul(ctx(), a, tensor({extent, extent}, diagonal)))) ASSERT_EQ(value, x);
  expect_equal(values(matmul(ctx(), tensor({1, 1}, {x}), tensor({1, 1}, {1}))), {x});
}

TEST_P(Matmul, Tf32WhenAskedFor) {
  if (dtype() != DType::f32 || backend() == Backend::cpu) GTEST_SKIP() << "about f32 on the GPU";
  ctx().set_precision({.allow_tf32 = true});
  Random random;
  const Tensor a = Matmul::random(random, {65, 130});
  const Tensor b = Matmul::random(random, {130, 72});
  const Reference expected = reference(a.shape(), values(a), b.shape(), values(b));
  expect_near(values(matmul(ctx(), a, b)), expected.values,
              [&](std::size_t i) { return 0x1p-10 * expected.magnitudes[i]; });
}

TEST_P(Matmul, NanMeetsEveryProductItBelongsTo) {
  for (const std::int64_t k : {1, 7, 64, 200}) {
    std::vector<double> a(static_cast<std::size_t>(3 * k), 1.0);
    a[static_cast<std::size_t>(2 * k - 1)] = kNan;  // the end of row 1
    std::vector<double> b(static_cast<std::size_t>(k * 5), 0.0);
    const std::vector<double> y = values(matmul(ctx(), tensor({3, k}, a), tensor({k, 5}, b)));
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 5 == 1) << "k " << k;
  }
}

TEST_P(Matmul, BatchesBroadcast) {
  Random random;
  const std::pair<Shape, Shape> cases[] = {
      {{4, 3, 5}, {5, 2}},           // one b for all: the batch joins the rows
      {{3, 5}, {4, 5, 2}},           // one a for all
      {{4, 1, 5}, {5, 2}},           // rows of 1
      {{2, 1, 3, 5}, {1, 4, 5, 2}},  // each axis of another operand: does not merge
      {{2, 4, 3, 5}, {2, 1, 5, 2}},  // the inner axis joins the rows, the outer one is the batch
      {{2, 1, 3, 3, 5}, {7, 1, 5, 2}},
      {{6, 2, 3, 5}, {6, 2, 5, 2}}};
  for (const auto& [a, b] : cases) {
    SCOPED_TRACE(to_string(a) + " x " + to_string(b));
    expect_product(Matmul::random(random, a), Matmul::random(random, b));
    const Tensor narrow = Matmul::random(random, a);
    expect_product(Matmul::random(random, a).transpose(-1, -2).transpose(-1, -2),
                   with_strides(ctx(), Matmul::random(random, b), Variant::permuted));
    expect_product(with_strides(ctx(), narrow, Variant::permuted), Matmul::random(random, b));
  }
  const Tensor expanded = Matmul::random(random, {3, 5}).expand({4, 3, 5});
  expect_product(expanded, Matmul::random(random, {4, 5, 2}));
  expect_product(Matmul::random(random, {5}).expand({3, 5}), Matmul::random(random, {5, 2}));
}

TEST_P(Matmul, LargerThanEveryTile) {
  Random random;
  expect_product(Matmul::random(random, {150, 333}), Matmul::random(random, {333, 530}));
  expect_product(Matmul::random(random, {333, 150}).transpose(0, 1),
                 Matmul::random(random, {530, 333}).transpose(0, 1));
  expect_product(Matmul::random(random, {1, 2048}), Matmul::random(random, {1000, 2048}).transpose(0, 1));
  expect_product(Matmul::random(random, {700, 64}), Matmul::random(random, {64, 1}));
  expect_product(Matmul::random(random, {1, 300000}), Matmul::random(random, {300000, 1}));
}

TEST_P(Matmul, RandomShapes) {
  Random random;
  const auto any_of = [&](auto... variants) {
    const std::array all{variants...};
    return all[static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(all.size()) - 1))];
  };
  const int cases = sweep(dtype() == DType::f32 ? 2000 : 500);
  for (int i = 0; i < cases && !HasFailure(); ++i) {
    const std::int64_t largest = i % 10 == 0 ? 70 : 17;
    const std::int64_t m = random.integer(1, largest);
    const std::int64_t n = random.integer(1, largest);
    const std::int64_t k = random.integer(i % 7 == 0 ? 0 : 1, 2 * largest);
    IntList a;
    IntList b;
    const int batch_axes = static_cast<int>(random.integer(0, 3));
    const int a_axes = static_cast<int>(random.integer(0, batch_axes));
    for (int axis = 0; axis < batch_axes; ++axis) {
      const std::int64_t extent = random.integer(1, 3);
      if (axis >= batch_axes - a_axes) a.push_back(random.chance(0.3) ? 1 : extent);
      b.push_back(random.chance(0.3) ? 1 : extent);
    }
    if (random.chance(0.5)) std::swap(a, b);
    for (const std::int64_t extent : {m, k}) a.push_back(extent);
    for (const std::int64_t extent : {k, n}) b.push_back(extent);
    const auto operand = [&](IntList extents) {
      const bool transposed = random.chance(0.5);
      const int last = extents.size() - 1;
      if (transposed) std::swap(extents[last], extents[last - 1]);
      const Variant variant =
          any_of(Variant::contiguous, Variant::channels_last, Variant::sliced, Variant::permuted);
      Tensor x = with_strides(ctx(), Matmul::random(random, Shape(extents)), variant);
      return transposed ? x.transpose(-1, -2) : x;
    };
    const Tensor left = operand(a);
    const Tensor right = operand(b);
    SCOPED_TRACE(fmt::format("case {} of seed {}: {} (strides {}) x {} (strides {})", i, random.seed(),
                             left.shape(), to_string(left.strides()), right.shape(),
                             to_string(right.strides())));
    expect_product(left, right);
  }
}

TEST_P(Matmul, IntegersAreExact) {
  Random random;
  for (const std::int64_t k : {1, 3, 8, 15, 16, 17, 31, 33, 63}) {
    const Tensor a = tensor({33, k}, random.integers(33 * k, -2, 2));
    const Tensor b = tensor({k, 31}, random.integers(k * 31, -2, 2));
    const Reference expected = reference(a.shape(), values(a), b.shape(), values(b));
    expect_equal(values(matmul(ctx(), a, b)), expected.values);
  }
}

TEST_P(Matmul, RunsAlikeEachTime) {
  Random random;
  const Tensor a = Matmul::random(random, {37, 515});
  const Tensor b = Matmul::random(random, {515, 41});
  const std::vector<double> first = values(matmul(ctx(), a, b));
  for (int i = 0; i < 5; ++i) expect_equal(values(matmul(ctx(), a, b)), first);
}

TEST_P(Matmul, WritesIntoAGivenOutput) {
  const Tensor a = tensor({2, 2}, {1, 2, 3, 4});
  const Tensor b = tensor({2, 2}, {1, 0, 0, 10});
  Tensor memory = empty(ctx(), {4, 2}, dtype());
  Tensor y = memory.slice(0, 1, 3);
  matmul_into(ctx(), y, a, b);
  expect_equal(values(y), {1, 20, 3, 40});
  EXPECT_TRUE(std::isnan(values(memory).front()) && std::isnan(values(memory).back()));
}

TEST_P(Matmul, RejectsWhatItCannotMultiply) {
  const Tensor a = tensor({2, 3}, std::vector<double>(6, 1.0));
  const Tensor b = tensor({3, 4}, std::vector<double>(12, 1.0));
  expect_error<ShapeError>([&] { matmul(ctx(), a, a); }, "matmul: columns of a (3) must equal rows of b (2)");
  expect_error<ShapeError>([&] { matmul(ctx(), a.reshape({6}), b); }, "rank 2");
  expect_error<ShapeError>([&] { matmul(ctx(), a, b.reshape({12})); }, "rank 2");
  expect_error<ShapeError>([&] { matmul(ctx(), {}, b); }, "matmul: a is undefined");
  expect_error<ShapeError>([&] { matmul(ctx(), a, {}); }, "matmul: b is undefined");
  expect_error<ShapeError>([&] { matmul(ctx(), a.expand({2, 2, 3}), b.expand({3, 3, 4})); }, "matmul");
  expect_error<DTypeError>([&] { matmul(ctx(), a, to(ctx(), b, DType::f64)); }, "b is f64");
  const Tensor whole = to(ctx(), a, DType::i32);
  expect_error<DTypeError>([&] { matmul(ctx(), whole, to(ctx(), b, DType::i32)); },
                           "matmul: a is i32 and must be");
}

TEST_P(Matmul, RejectsOutputsThatDoNotFit) {
  const Tensor a = tensor({2, 2}, {1, 2, 3, 4});
  const auto into = [&](const Tensor& y) {
    return [&, y] {
      Tensor out = y;
      matmul_into(ctx(), out, a, a);
    };
  };
  expect_error<ShapeError>(into({}), "output is undefined");
  expect_error<ShapeError>(into(empty(ctx(), {2, 3}, dtype())), "[2, 2]");
  expect_error<DTypeError>(into(empty(ctx(), {2, 2}, DType::f64)), "f64");
  expect_error<ShapeError>(into(empty(ctx(), {2}, dtype()).expand({2, 2})), "internal overlap");
  expect_error<ShapeError>(into(empty(ctx(), {2, 2}, dtype()).transpose(0, 1)), "dense");
  expect_error<ShapeError>(into(a), "the output aliases a");
  Tensor images = empty(ctx(), {1, 2, 2, 2}, dtype(), Layout::channels_last);
  const Tensor batch = tensor({1, 2, 2, 2}, std::vector<double>(8, 1.0));
  expect_error<ShapeError>([&] { matmul_into(ctx(), images, batch, batch); }, "must be contiguous");
}

TEST_P(Matmul, FailsCleanlyWhenMemoryRunsOut) {
  const Backend forced = backend();
  const DType dtype = this->dtype();
  expect_clean_allocation_failures(GetParam().device(), [&](Context& fresh) {
    fresh.prefer(forced);
    const Tensor a = full(fresh, {2, 6, 8}, 1, dtype).slice(2, 0, 8, 2);
    const Tensor y = matmul(fresh, a, full(fresh, {4, 3}, 1, dtype));
    EXPECT_EQ(values_of(fresh, y), std::vector<double>(36, 4.0));
  });
}

TEST_P(Matmul, MeasuringFindsTheSameResults) {
  ctx().set_autotune(true);
  Random random;
  const Tensor a = Matmul::random(random, {65, 130});
  const Tensor b = Matmul::random(random, {130, 72});
  expect_product(a, b);
  expect_product(a, b);  // from the plan cache
  if (backend() != Backend::cpu) ctx().prefer(Backend::automatic);
  expect_product(a, b);
}

}  // namespace
}  // namespace burin::test
