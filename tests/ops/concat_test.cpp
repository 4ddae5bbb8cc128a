#include <burin/ops/concat/concat.h>
#include <support/test_support.h>

namespace burin::test {
namespace {

class Concat : public OnEachTarget {};

INSTANTIATE_TEST_SUITE_P(All, Concat,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda},
                                                     {DType::f32, DType::f16, DType::bf16, DType::f64,
                                                      DType::i8, DType::u8, DType::i32, DType::i64,
                                                      DType::boolean})),
                         target_name);

/// Row-major values of the parts, joined.
std::vector<double> reference(const std::vector<Shape>& shapes, const std::vector<std::vector<double>>& parts,
                              int axis) {
  std::int64_t outer = 1;
  for (int k = 0; k < axis; ++k) outer *= shapes[0][k];
  std::vector<double> joined;
  for (std::int64_t i = 0; i < outer; ++i)
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const auto run = static_cast<std::int64_t>(parts[p].size()) / outer;
      joined.insert(joined.end(), parts[p].begin() + i * run, parts[p].begin() + (i + 1) * run);
    }
  return joined;
}

TEST_P(Concat, RandomPartsAndStrides) {
  Random random;
  const int rounds = sweep(dtype() == DType::f32 ? 2000 : 200);
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    IntList extents;
    const auto rank = random.integer(1, 5);
    for (int axis = 0; axis < rank; ++axis) extents.push_back(random.chance(0.02) ? 0 : random.integer(1, 6));
    const auto axis = static_cast<int>(random.integer(0, rank - 1));
    std::vector<Shape> shapes;
    std::vector<std::vector<double>> part_values;
    std::vector<Tensor> parts;
    for (auto count = random.integer(1, 5); count > 0; --count) {
      extents[axis] = random.integer(0, 5);
      shapes.emplace_back(extents);
      part_values.push_back(random.integers(shapes.back().count(), 0, dtype() == DType::boolean ? 1 : 100));
      parts.push_back(
          with_strides(ctx(), tensor(shapes.back(), part_values.back()), random.choice(kVariants)));
    }
    SCOPED_TRACE(fmt::format("seed {}, round {}: {} parts, first {}, axis {}", random.seed(), round,
                             parts.size(), shapes[0], axis));
    std::vector<double> expected;
    if (ConcatParams{axis}.output_shape(parts).count() > 0) expected = reference(shapes, part_values, axis);
    const Tensor y = concat(ctx(), parts, {random.chance(0.5) ? axis : axis - static_cast<int>(rank)});
    EXPECT_TRUE(y.is_dense_in(y.layout()));
    expect_equal(values(y), expected);
    if (rank == 4) {
      Tensor last = empty(ctx(), y.shape(), dtype(), Layout::channels_last);
      concat_into(ctx(), last, parts, {axis});
      expect_equal(values(last), expected);
    }
  }
}

TEST_P(Concat, JoinsChannelsAndKeepsLayout) {
  const Tensor a = tensor({1, 1, 1, 3}, {1, 0, 1});
  const Tensor b = tensor({1, 2, 1, 3}, {0, 0, 1, 1, 1, 0});
  const Tensor y = concat(ctx(), {a, b}, {1});
  EXPECT_EQ(y.shape(), Shape({1, 3, 1, 3}));
  EXPECT_FALSE(y.is_channels_last());
  expect_equal(values(y), {1, 0, 1, 0, 0, 1, 1, 1, 0});
  const Tensor b_last = with_strides(ctx(), b, Variant::channels_last);
  EXPECT_TRUE(concat(ctx(), {a, b_last}, {1}).is_channels_last());  // both orders fit a
  expect_equal(values(concat(ctx(), {a, b_last}, {1})), values(y));
  EXPECT_FALSE(concat(ctx(), {b, b_last}, {1}).is_channels_last());
}

TEST_P(Concat, SkipsEmptyParts) {
  const Tensor none = tensor({0, 2}, {});
  const Tensor row = tensor({1, 2}, {1, 0});
  expect_equal(values(concat(ctx(), {none, row, none, row}, {0})), {1, 0, 1, 0});
  EXPECT_EQ(concat(ctx(), {none, none}, {0}).shape(), Shape({0, 2}));
  EXPECT_EQ(concat(ctx(), {none, none}, {1}).shape(), Shape({0, 4}));
}

TEST_P(Concat, RefusesWhatDoesNotFit) {
  const Tensor x = tensor({2, 2}, {1, 0, 1, 0});
  const DType other = dtype() == DType::f32 ? DType::i32 : DType::f32;
  EXPECT_THROW(concat(ctx(), std::span<const Tensor>()), ShapeError);
  EXPECT_THROW(concat(ctx(), {x, Tensor()}), ShapeError);
  EXPECT_THROW(concat(ctx(), {x, to(ctx(), x, other)}), DTypeError);
  EXPECT_THROW(concat(ctx(), {x, x.select(0, 0)}), ShapeError);
  EXPECT_THROW(concat(ctx(), {x, x}, {2}), ShapeError);
  EXPECT_THROW(concat(ctx(), {x, x}, {-3}), ShapeError);
  EXPECT_THROW(concat(ctx(), {x.select(0, 0).select(0, 0)}), ShapeError);
  const Tensor whole = tensor({4, 2}, {1, 0, 1, 0, 1, 0, 1, 0});
  Tensor y = whole;
  const std::vector<Tensor> aliases = {whole.slice(0, 0, 2), x};
  EXPECT_THROW(concat_into(ctx(), y, aliases), ShapeError);
  const std::vector<Tensor> parts = {x, x, x};
  EXPECT_THROW(concat_into(ctx(), y, parts), ShapeError);
  expect_error<ShapeError>(
      [&] {
        concat(ctx(), {x, tensor({2, 1}, {1, 0})}, {0});
      },
      "concat: shape [2, 1] of part 1 must equal [2, 2] of part 0");
}

TEST_P(Concat, FailsCleanlyWhenMemoryRunsOut) {
  expect_clean_allocation_failures(ctx().device(), [&](Context& failing) {
    const Tensor x = zeros(failing, {2, 2}, dtype());
    concat(failing, {x, x.transpose(0, 1)}, {1});
  });
}

}  // namespace
}  // namespace burin::test
