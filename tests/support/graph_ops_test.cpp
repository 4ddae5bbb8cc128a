// The operators that tests of graphs use: on the CPU, and on the fake device or a GPU.

#include <support/graph_fixture.h>

namespace burin::test {
namespace {

void expect_right(Context& ctx) {
  const Tensor x = from_host(ctx, std::vector<float>{1, -2, 3.5f}, {3});
  const Tensor y = affine(ctx, x, 2, -1);
  EXPECT_EQ(to_vector<float>(ctx, y), (std::vector<float>{1, -5, 6}));
  EXPECT_EQ(to_vector<float>(ctx, sum2(ctx, x, y)), (std::vector<float>{2, -7, 9.5f}));
  EXPECT_EQ(to_vector<float>(ctx, hidden(ctx, x)), (std::vector<float>{1, -2, 3.5f}));
  Tensor z = hidden(ctx, x);
  affine_into(ctx, z, z, 10, 0);
  EXPECT_EQ(to_vector<float>(ctx, z), (std::vector<float>{10, -20, 35}));
  const float above = 0x1.000002p0f;  // whose square is above 0x1.000004p0, which it is rounded to
  const Tensor pair = from_host(ctx, std::vector<float>{above, above}, {2});
  EXPECT_EQ(to_vector<float>(ctx, affine(ctx, pair, above, -0x1.000004p0f)), (std::vector<float>{0, 0}));

  const Tensor none = empty(ctx, {0});
  EXPECT_EQ(sum2(ctx, hidden(ctx, none), affine(ctx, none, 1, 1)).count(), 0);
  expect_error<ShapeError>([&] { sum2(ctx, x, pair); }, "sum2: shapes of x [3] and y [2] must be equal");
  expect_error<ShapeError>([&] { affine(ctx, x.slice(0, 0, 3, 2), 1, 1); }, "affine: x must be contiguous");
  expect_error<DTypeError>([&] { affine(ctx, empty(ctx, {3}, DType::i32), 1, 1); },
                           "affine: x must be f32, got i32");
}

TEST(GraphOps, RunOnTheCpu) {
  Context ctx;
  expect_right(ctx);
}

class GraphOpsOnCuda : public OnGraphs {};

TEST_F(GraphOpsOnCuda, RunOnTheDevice) {
  Context ctx = make_context();
  expect_right(ctx);
  EXPECT_EQ(value_of(ctx, affine(ctx, filled(ctx, 2, 100'000), 3, 1)), 7);
}

}  // namespace
}  // namespace burin::test
