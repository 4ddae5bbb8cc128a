#include <burin/ops/op_list.h>
#include <support/test_support.h>

#include <gmock/gmock.h>

namespace burin::test {
namespace {

class OpList : public ::testing::Test {
 protected:
  Context ctx_;
  Tensor row(const std::vector<float>& values) {
    return from_host(ctx_, values, {1, static_cast<std::int64_t>(values.size())});
  }
  std::vector<float> run(const OpParams& params, const std::vector<Tensor>& inputs) {
    return to_vector<float>(ctx_, burin::run(ctx_, params, inputs));
  }
  void expect_refused(const OpParams& params, const std::vector<Tensor>& inputs, const std::string& message) {
    expect_error<ShapeError>([&] { burin::run(ctx_, params, inputs); }, message);
  }
};

TEST_F(OpList, Names) {
  EXPECT_EQ(op_name(Activation::relu()), "activation");
  EXPECT_EQ(op_name(BatchNormParams{}), "batch_norm");
  EXPECT_EQ(op_name(BinaryParams{BinaryKind::mul}), "mul");
  EXPECT_EQ(op_name(CastParams{}), "cast");
  EXPECT_EQ(op_name(ConcatParams{}), "concat");
  EXPECT_EQ(op_name(SoftmaxParams{.log = true}), "log_softmax");
  EXPECT_EQ(op_name(GlobalAvgPool2dParams{}), "global_avg_pool2d");
}

TEST_F(OpList, CallsTheOperator) {
  const Tensor x = row({-1, 2});
  const Tensor ones = full(ctx_, {2}, 1);
  using ::testing::ElementsAre;
  EXPECT_THAT(run(Activation::relu(), {x}), ElementsAre(0, 2));
  EXPECT_THAT(run(BinaryParams{BinaryKind::sub}, {x, ones}), ElementsAre(-2, 1));
  EXPECT_THAT(run(BatchNormParams{.eps = 0}, {x, ones, ones}), ElementsAre(-2, 1));
  EXPECT_THAT(run(BatchNormParams{.eps = 0}, {x, ones, ones, Tensor(), ones}), ElementsAre(-1, 2));
  EXPECT_THAT(run(ConcatParams{1}, {x, x, x}), ElementsAre(-1, 2, -1, 2, -1, 2));
  EXPECT_THAT(run(CastParams{DType::f32}, {to(ctx_, x, DType::i32)}), ElementsAre(-1, 2));
}

TEST_F(OpList, CallsTheOperatorsOfImages) {
  const Tensor x = from_host<float>(ctx_, {1, 2, 3, 4}, {1, 1, 2, 2});
  const Tensor one = full(ctx_, {1, 1, 1, 1}, 2);
  const Tensor bias = full(ctx_, {1}, 1);
  using ::testing::ElementsAre;
  EXPECT_THAT(run(Conv2dParams{}, {x, one}), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(run(Conv2dParams{}, {x, one, bias, x}), ElementsAre(4, 7, 10, 13));
  EXPECT_THAT(run(MaxPool2dParams{.kernel = {2, 2}}, {x}), ElementsAre(4));
  EXPECT_THAT(run(AvgPool2dParams{.kernel = {2, 1}}, {x}), ElementsAre(2, 3));
  EXPECT_THAT(run(GlobalAvgPool2dParams{}, {x}), ElementsAre(2.5));
}

TEST_F(OpList, CallsTheOperatorsOfRows) {
  const Tensor x = row({1, 3});
  const Tensor w = from_host<float>(ctx_, {1, 0, 2, 1}, {2, 2});
  using ::testing::ElementsAre;
  EXPECT_THAT(run(LinearParams{}, {x, w}), ElementsAre(1, 5));
  EXPECT_THAT(run(LinearParams{}, {x, w, full(ctx_, {2}, 1)}), ElementsAre(2, 6));
  EXPECT_THAT(run(MatmulParams{}, {x, w}), ElementsAre(7, 3));
  EXPECT_THAT(run(SoftmaxParams{}, {row({5, 5})}), ElementsAre(0.5, 0.5));
  EXPECT_EQ(to_vector<std::int64_t>(ctx_, burin::run(ctx_, ArgmaxParams{}, std::vector<Tensor>{x})),
            std::vector<std::int64_t>{1});
}

TEST_F(OpList, ChecksTheNumberOfInputs) {
  const Tensor x = row({1, 2});
  expect_refused(BinaryParams{}, {x}, "add: the number of inputs (1) must be 2");
  expect_refused(Activation::relu(), {x, x}, "activation: the number of inputs (2) must be 1");
  expect_refused(BatchNormParams{}, {x, x}, "batch_norm: the number of inputs (2) must be 3 to 5");
  expect_refused(CastParams{}, {}, "cast: the number of inputs (0) must be 1");
  expect_refused(ConcatParams{}, {}, "concat: there must be one part or more");
  expect_refused(BinaryParams{}, {x, Tensor()}, "add: b is undefined");
}

}  // namespace
}  // namespace burin::test
