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
    try {
      burin::run(ctx_, params, inputs);
      FAIL() << message;
    } catch (const ShapeError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(message));
    }
  }
};

TEST_F(OpList, Names) {
  EXPECT_EQ(op_name(Activation::relu()), "activation");
  EXPECT_EQ(op_name(ArgmaxParams{}), "argmax");
  EXPECT_EQ(op_name(AvgPool2dParams{}), "avg_pool2d");
  EXPECT_EQ(op_name(BatchNormParams{}), "batch_norm");
  EXPECT_EQ(op_name(BinaryParams{BinaryKind::mul}), "mul");
  EXPECT_EQ(op_name(CastParams{}), "cast");
  EXPECT_EQ(op_name(ConcatParams{}), "concat");
  EXPECT_EQ(op_name(GlobalAvgPool2dParams{}), "global_avg_pool2d");
  EXPECT_EQ(op_name(MaxPool2dParams{}), "max_pool2d");
  EXPECT_EQ(op_name(SoftmaxParams{}), "softmax");
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
  const Tensor plane = x.reshape({1, 1, 1, 2});
  EXPECT_THAT(run(MaxPool2dParams{.kernel = {1, 2}}, {plane}), ElementsAre(2));
  EXPECT_THAT(run(AvgPool2dParams{.kernel = {1, 2}}, {plane}), ElementsAre(0.5f));
  EXPECT_THAT(run(GlobalAvgPool2dParams{}, {plane}), ElementsAre(0.5f));
  EXPECT_THAT(run(SoftmaxParams{.axis = 0}, {x}), ElementsAre(1, 1));
  EXPECT_THAT(to_vector<std::int64_t>(ctx_, burin::run(ctx_, ArgmaxParams{}, std::vector<Tensor>{x})),
              ElementsAre(1));
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
