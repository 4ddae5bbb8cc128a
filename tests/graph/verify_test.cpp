// verify(): what agrees, and which operator is named where two runs differ.

#include <burin/graph/tensor_difference.h>
#include <burin/graph/verify.h>
#include <burin/nn/models/sample_cnn.h>
#include <burin/runtime/name_scope.h>
#include <burin/runtime/random.h>
#include <burin/runtime/stream_state.h>
#include <support/graph_fixture.h>

#include <gmock/gmock.h>

namespace burin::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<Tensor> one(Tensor x) { return {std::move(x)}; }

/// sum2(affine(x), hidden(x)), the affine within a name.
Forward pass_with(const std::function<float(Context&)>& factor) {
  return [factor](Context& ctx, std::span<const Tensor> inputs) {
    const Tensor copy = hidden(ctx, inputs[0]);
    const NameScope scope(ctx, "block.scale");
    const Tensor y = affine(ctx, inputs[0], factor(ctx), 1);
    return one(sum2(ctx, y, copy));
  };
}

/// A pass whose factor is `first` at the first call and `later` at all others.
Forward changing_pass(float first, float later) {
  return pass_with(
      [=, calls = std::make_shared<int>(0)](Context&) { return (*calls)++ == 0 ? first : later; });
}

class VerifyOnCpu : public ::testing::Test {
 protected:
  Context ctx_{Device::cpu(), {.threads = 1}};
  std::vector<Tensor> inputs_ = one(from_host<float>(ctx_, {1, 2, 3, 4}, {4}));

  VerifyReport verify(const Forward& forward, const VerifyOptions& options = {}) {
    return burin::verify(ctx_, forward, inputs_, options);
  }
  void expect_divergence(const VerifyReport& report, int op, const std::string& message) {
    EXPECT_FALSE(report.agrees);
    EXPECT_EQ(report.first_divergence, op);
    EXPECT_EQ(report.message, message);
  }
};

TEST_F(VerifyOnCpu, TellsThatTwoRunsAgree) {
  const VerifyReport report = verify(changing_pass(2, 2));
  EXPECT_TRUE(report.agrees);
  EXPECT_EQ(report.first_divergence, -1);
  EXPECT_EQ(report.message,
            "the second run equals the first run bit for bit, operator by operator (3 compared)");
  ASSERT_EQ(report.ops.size(), 3u);
  EXPECT_EQ(report.ops[1].op.name, "affine");
  EXPECT_EQ(report.ops[1].op.path, "block.scale");
  EXPECT_EQ(report.ops[1].op.inputs, std::vector<TensorSpec>{inputs_[0].spec()});
  EXPECT_EQ(report.ops[2].op.bytes, 48u);
  EXPECT_EQ(report.ops[0].eager_checksum, detail::checksum(inputs_[0]));
  for (const VerifyReport::Op& op : report.ops) {
    EXPECT_TRUE(op.is_compared);
    EXPECT_EQ(op.eager_checksum, op.replay_checksum);
    EXPECT_EQ(op.cpu_error, -1);
  }
}

TEST_F(VerifyOnCpu, NamesTheFirstOperatorThatDiffers) {
  const VerifyReport report = verify(changing_pass(2, 3));
  expect_divergence(report, 1,
                    "affine in 'block.scale' [4]: the second run's output differs from the first run's in 4 "
                    "of 4 elements, first at 0: 4 instead of 3");
  EXPECT_EQ(report.ops[0].eager_checksum, report.ops[0].replay_checksum);
  EXPECT_NE(report.ops[1].eager_checksum, report.ops[1].replay_checksum);
}

TEST_F(VerifyOnCpu, SeesASingleBit) {
  const Forward forward = [calls = 0](Context& ctx, std::span<const Tensor> inputs) mutable {
    return one(affine(ctx, inputs[0], ++calls == 1 ? 1.0f : -1.0f, -0.0f));
  };
  inputs_ = one(zeros(ctx_, {3}));
  expect_divergence(verify(forward), 0,
                    "affine [3]: the second run's output differs from the first run's in 3 of 3 elements, "
                    "first at 0: -0 instead of 0");
}

TEST_F(VerifyOnCpu, LeavesOutWhatALaterOperatorOverwrites) {
  const Forward forward = [calls = 0](Context& ctx, std::span<const Tensor> inputs) mutable {
    Tensor y = affine(ctx, inputs[0], static_cast<float>(++calls), 0);  // not the same in two runs
    affine_into(ctx, y, y, 0, 5);
    return one(y);
  };
  const VerifyReport report = verify(forward);
  EXPECT_TRUE(report.agrees) << report.message;
  EXPECT_THAT(report.message, HasSubstr("(1 compared)"));
  ASSERT_EQ(report.ops.size(), 2u);
  EXPECT_FALSE(report.ops[0].is_compared);
  EXPECT_EQ(report.ops[0].eager_checksum, 0u);
  EXPECT_TRUE(report.ops[1].is_compared);
}

TEST_F(VerifyOnCpu, NamesAnOperatorThatOneRunLacks) {
  const auto with_calls = [](std::vector<int> operators) {
    return [operators, run = std::size_t{0}](Context& ctx, std::span<const Tensor> inputs) mutable {
      Tensor y = inputs[0];
      const int count = operators[run++];
      for (int i = 0; i < count; ++i) y = hidden(ctx, y);
      return one(y);
    };
  };
  expect_divergence(verify(with_calls({3, 2})), 2, "hidden [4]: the second run does not have it");
  expect_divergence(verify(with_calls({1, 2})), -1, "the second run has 2 operators, the first run 1");
}

TEST_F(VerifyOnCpu, NamesAnOperatorOfAnotherShapeOrResult) {
  expect_divergence(verify([calls = 0](Context& ctx, std::span<const Tensor> inputs) mutable {
                      return one(hidden(ctx, ++calls == 1 ? inputs[0] : inputs[0].slice(0, 0, 2)));
                    }),
                    0, "hidden [4]: the second run's output is f32 [2], and the first run's is f32 [4]");
  expect_divergence(verify([calls = 0](Context& ctx, std::span<const Tensor>) mutable {
                      return one(full(ctx, {2}, ++calls));  // of no operator
                    }),
                    -1,
                    "result 0 of the pass: the second run's differs from the first run's in 2 of 2 elements, "
                    "first at 0: 2 instead of 1");
}

TEST_F(VerifyOnCpu, LeavesTheInputsAsTheyAre) {
  const VerifyReport report = verify([](Context& ctx, std::span<const Tensor> inputs) {
    Tensor x = inputs[0];
    affine_into(ctx, x, x, 2, 0);
    return one(x);
  });
  EXPECT_TRUE(report.agrees) << report.message;
  EXPECT_EQ(to_vector<float>(ctx_, inputs_[0]), (std::vector<float>{1, 2, 3, 4}));
  inputs_.emplace_back();
  expect_error<ShapeError>([&] { verify(changing_pass(1, 1)); }, "verify: input 1 is undefined");
}

TEST_F(VerifyOnCpu, ComparesWithTheReference) {
  const VerifyReport report = verify(changing_pass(2, 2), {.reference = changing_pass(2, 2)});
  EXPECT_TRUE(report.agrees) << report.message;
  EXPECT_EQ(report.message,
            "the second run equals the first run bit for bit, operator by operator (3 compared); the largest "
            "error against the "
            "CPU is 0");
  for (const VerifyReport::Op& op : report.ops) EXPECT_EQ(op.cpu_error, 0);

  const VerifyReport other = verify(changing_pass(2, 2), {.reference = changing_pass(2.5f, 2.5f)});
  expect_divergence(other, 1,
                    "affine in 'block.scale' [4]: differs from the CPU's by 0.18 of the largest magnitude; "
                    "0.0001 is allowed");
  EXPECT_NEAR(other.ops[1].cpu_error, 2.0 / 11, 1e-6);
  EXPECT_TRUE(verify(changing_pass(2, 2), {.reference = changing_pass(2.5f, 2.5f), .tolerance = 0.2}).agrees);
}

TEST_F(VerifyOnCpu, ComparesResultsAloneWithAnotherKindOfReference) {
  const Forward by_hand = [](Context& ctx, std::span<const Tensor> inputs) {
    return one(affine(ctx, inputs[0], 3, 1));
  };
  const VerifyReport report = verify(changing_pass(2, 2), {.reference = by_hand});
  EXPECT_TRUE(report.agrees);
  EXPECT_THAT(report.message, HasSubstr("the largest error against the CPU is 0; only results were compared "
                                        "with the CPU, which ran other operators (1 against 3)"));
  EXPECT_EQ(report.ops[0].cpu_error, -1);
  expect_divergence(
      verify(changing_pass(4, 4), {.reference = by_hand}), -1,
      "result 0 of the pass: differs from the CPU's by 0.62 of the largest magnitude; 0.0001 is "
      "allowed; only results were compared with the CPU, which ran other operators (1 against "
      "3)");
  const Forward two = [](Context&, std::span<const Tensor> inputs) {
    return std::vector<Tensor>{inputs[0], inputs[0]};
  };
  EXPECT_THAT(verify(changing_pass(2, 2), {.reference = two}).message,
              StartsWith("the CPU gave 2 results, the device 1"));
  const Forward shorter = [](Context&, std::span<const Tensor> inputs) {
    return one(inputs[0].slice(0, 0, 2));
  };
  EXPECT_THAT(verify(changing_pass(2, 2), {.reference = shorter}).message,
              StartsWith("result 0 of the pass: has shape [4], and [2] on the CPU"));
}

TEST_F(VerifyOnCpu, TakesAModuleAsReference) {
  nn::SampleCnn model;
  model.init(ctx_, 1);
  inputs_ = one(uniform(ctx_, {2, 1, 28, 28}, Philox{.seed = 3}, -1, 1));
  const Forward reference = cpu_reference(ctx_, model);
  const Forward forward = [&](Context& ctx, std::span<const Tensor> inputs) {
    return one(model(ctx, inputs[0]));
  };
  EXPECT_TRUE(verify(forward, {.reference = reference}).agrees);
  model.init(ctx_, 2);  // the reference is a copy
  const VerifyReport report = verify(forward, {.reference = reference});
  EXPECT_EQ(report.first_divergence, 0);
  EXPECT_THAT(report.message, StartsWith("conv2d in 'conv1' [2, 32, 26, 26]: differs from the CPU's by "));
  expect_error<ShapeError>([&] { reference(ctx_, {}); }, "cpu_reference: a module takes one input");
}

TEST_F(VerifyOnCpu, TakesAnExecutor) {
  GraphExecutor executor(ctx_, changing_pass(2, 2));
  EXPECT_EQ(burin::verify(executor, inputs_).message,
            "the second run equals the first run bit for bit, operator by operator (3 compared); so do the "
            "executor's results");
  EXPECT_EQ(executor.report().eager_runs, 1u);
}

TEST_F(VerifyOnCpu, CountsResults) {
  expect_divergence(verify([calls = 0](Context&, std::span<const Tensor> inputs) mutable {
                      return std::vector<Tensor>(static_cast<std::size_t>(++calls), inputs[0]);
                    }),
                    -1, "the second run has 2 results, the first run 1");
}

TEST(Verify, FailsCleanlyWithoutMemory) {
  expect_clean_allocation_failures(Device::cpu(), [](Context& ctx) {
    EXPECT_TRUE(verify(ctx, changing_pass(2, 2), one(full(ctx, {4}, 1))).agrees);
  });
}

TEST_F(VerifyOnCpu, ErrorsAreRelativeToTheLargestMagnitude) {
  const auto error = [&](const std::vector<float>& given, const std::vector<float>& expected) {
    const Shape shape{static_cast<std::int64_t>(given.size())};
    return detail::relative_error(from_host(ctx_, given, shape), from_host(ctx_, expected, shape));
  };
  const auto nan = static_cast<float>(kNan);
  const auto inf = static_cast<float>(kInf);
  EXPECT_EQ(error({}, {}), 0);
  EXPECT_EQ(error({1, 0}, {0, -4}), 1);
  EXPECT_EQ(error({nan, inf, 2}, {nan, inf, 4}), 0.5);
  EXPECT_EQ(error({nan}, {1}), kInf);
  EXPECT_EQ(error({1}, {inf}), kInf);
  EXPECT_EQ(error({inf}, {-inf}), kInf);
  EXPECT_EQ(error({1}, {0}), kInf);
  EXPECT_EQ(error({0}, {-0.0f}), 0);
}

TEST_F(VerifyOnCpu, DifferencesAreTextsOfEveryType) {
  for (const DType dtype :
       {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i8, DType::u8, DType::i32, DType::i64}) {
    const Tensor a = to(ctx_, from_host<float>(ctx_, {7, 65, 9}, {3}), dtype);
    const Tensor b = to(ctx_, from_host<float>(ctx_, {7, 66, 8}, {3}), dtype);
    EXPECT_EQ(detail::bit_difference(a, b, "that"),
              "differs from that in 2 of 3 elements, first at 1: 65 instead of 66")
        << name(dtype);
    EXPECT_EQ(detail::bit_difference(a, clone(ctx_, a), "that"), "");
  }
  EXPECT_EQ(
      detail::bit_difference(full(ctx_, {1}, 1, DType::boolean), full(ctx_, {1}, 0, DType::boolean), "it"),
      "differs from it in 1 of 1 elements, first at 0: true instead of false");
  EXPECT_EQ(detail::checksum(empty(ctx_, {0})), 0xcbf29ce484222325);
  EXPECT_EQ(detail::checksum(full(ctx_, {1}, 'a', DType::u8)), 0xaf63dc4c8601ec8c);  // FNV's own test vector
}

class VerifyOnDevice : public OnGraphs {};

TEST_F(VerifyOnDevice, TellsThatAReplayAgrees) {
  Context ctx = make_context();
  const std::vector<Tensor> inputs = one(vector_of(ctx, {1, 2, 3, 4}));
  const std::size_t bytes = pool()->stats().allocated_bytes.current;
  const VerifyReport report = verify(ctx, changing_pass(2, 2), inputs, {.reference = changing_pass(2, 2)});
  EXPECT_TRUE(report.agrees);
  EXPECT_EQ(report.message,
            "the replay equals the eager run bit for bit, operator by operator (3 compared); the largest "
            "error against the CPU is "
            "0");
  ASSERT_EQ(report.ops.size(), 3u);
  for (const VerifyReport::Op& op : report.ops) {
    EXPECT_TRUE(op.is_compared);
    EXPECT_NE(op.eager_checksum, 0u);
    EXPECT_EQ(op.eager_checksum, op.replay_checksum);
    EXPECT_EQ(op.cpu_error, 0);
  }
  EXPECT_EQ(pool()->stats().allocated_bytes.current, bytes);
}

TEST_F(VerifyOnDevice, ComparesWhatAnExecutorGives) {
  Context ctx = make_context();
  const auto factor = std::make_shared<float>(2.0f);
  const Forward forward = pass_with([=](Context&) { return *factor; });
  const std::vector<Tensor> inputs = one(vector_of(ctx, {1, 2}));
  GraphExecutor executor(ctx, forward);
  EXPECT_EQ(verify(executor, inputs).message,
            "the replay equals the eager run bit for bit, operator by operator (3 compared); so do the "
            "executor's results");
  EXPECT_EQ(executor.report().replays, 1u);
  *factor = 3;  // which the executor's graph does not know
  const VerifyReport report = verify(executor, inputs);
  EXPECT_FALSE(report.agrees);
  EXPECT_EQ(report.first_divergence, -1);
  EXPECT_EQ(report.message,
            "result 0 of the pass: the executor's differs from the eager run's in 2 of 2 elements, first at "
            "0: 4 instead of 5");

  GraphExecutor in_buckets(ctx, forward, {.buckets = {2, 4}});
  EXPECT_TRUE(verify(in_buckets, inputs).agrees);
  EXPECT_EQ(in_buckets.report().replays, 1u);
  EXPECT_TRUE(verify(in_buckets, one(vector_of(ctx, {1, 2, 3}))).agrees);  // would be padded
  EXPECT_EQ(in_buckets.report().replays, 1u);
}

TEST_F(VerifyOnDevice, NamesTheOperatorThatDiffersWhenRecorded) {
  Context ctx = make_context();
  const Forward forward =
      pass_with([](Context& at) { return detail::capture_of(at.stream()) ? 7.0f : 2.0f; });
  const VerifyReport report = verify(ctx, forward, one(vector_of(ctx, {1, 2})));
  EXPECT_FALSE(report.agrees);
  EXPECT_EQ(report.first_divergence, 1);
  EXPECT_EQ(report.message,
            "affine in 'block.scale' [2]: the replay's output differs from the eager run's in 2 of 2 "
            "elements, first at 0: 8 instead of 3");
}

TEST_F(VerifyOnDevice, KeepsOutputsWhoseMemoryAGraphWouldUseAgain) {
  Context ctx = make_context();
  const Forward chain = [](Context& at, std::span<const Tensor> inputs) {
    Tensor y = inputs[0];
    for (int i = 0; i < 6; ++i) y = affine(at, y, 1, 1);
    return one(y);
  };
  const VerifyReport report = verify(ctx, chain, one(filled(ctx, 1, 1000)));
  EXPECT_TRUE(report.agrees) << report.message;
  ASSERT_EQ(report.ops.size(), 6u);
  Context cpu;
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(report.ops[i].replay_checksum, detail::checksum(full(cpu, {1000}, static_cast<double>(i) + 2)));
}

TEST_F(VerifyOnDevice, AllowsResultsThatAGraphCopies) {
  Context ctx = make_context();
  const Forward forward = [](Context& at, std::span<const Tensor> inputs) {
    return std::vector<Tensor>{inputs[0], affine(at, inputs[0], 2, 0)};  // the first is no output of its own
  };
  const VerifyReport report = verify(ctx, forward, one(vector_of(ctx, {1, 2})));
  EXPECT_TRUE(report.agrees) << report.message;
  EXPECT_EQ(report.ops.size(), 1u);
}

TEST_F(VerifyOnDevice, AgreesWithTheCpuOnAModel) {
  if (fake()) GTEST_SKIP() << "the fake device has no kernels of convolutions";
  Context ctx = make_context();
  nn::SampleCnn model;
  model.init(ctx, 1);
  const std::vector<Tensor> inputs = one(uniform(ctx, {2, 1, 28, 28}, Philox{.seed = 3}, -1, 1));
  const VerifyReport report =
      verify(ctx, [&](Context& at, std::span<const Tensor> xs) { return one(model(at, xs[0])); }, inputs,
             {.reference = cpu_reference(ctx, model)});
  EXPECT_TRUE(report.agrees) << report.message;
  ASSERT_EQ(report.ops.size(), 5u);
  for (const VerifyReport::Op& op : report.ops) EXPECT_GE(op.cpu_error, 0);
}

TEST_F(VerifyOnDevice, DrawsTheSameNumbersInEachRun) {
  if (fake()) GTEST_SKIP() << "the fake device has no kernels that draw";
  Context ctx = make_context();
  Generator random(1);
  const Forward forward = [&](Context& at, std::span<const Tensor> inputs) {
    return one(sum2(at, inputs[0], uniform(at, {4}, random)));
  };
  const VerifyReport report = verify(ctx, forward, one(filled(ctx, 0)), {.reference = forward});
  EXPECT_TRUE(report.agrees) << report.message;
}

TEST_F(VerifyOnDevice, ThrowsWhatCaptureThrows) {
  Context ctx = make_context();
  const Forward waits = [](Context& at, std::span<const Tensor> inputs) {
    at.synchronize();
    return one(affine(at, inputs[0], 1, 1));
  };
  expect_error<CaptureError>([&] { verify(ctx, waits, one(filled(ctx, 1))); }, "capture: ");
  EXPECT_TRUE(verify(ctx, changing_pass(1, 1), one(filled(ctx, 1))).agrees);
}

TEST_F(VerifyOnDevice, EveryCallMayFail) {
  if (!fake()) GTEST_SKIP() << "only calls of the fake device fail when they are asked to";
  Context ctx = make_context();
  const std::vector<Tensor> inputs = one(vector_of(ctx, {1, 2}));
  GraphExecutor executor(ctx, changing_pass(2, 2));
  EXPECT_TRUE(verify(executor, inputs).agrees);
  const std::size_t bytes = pool()->stats().allocated_bytes.current;
  int failures = 0;
  for (std::uint64_t n = 1; n < 2000; ++n) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, "call " + std::to_string(n));
    fake()->fail_call(n, cudaErrorNotPermitted);
    try {
      EXPECT_TRUE(verify(executor, inputs, {.reference = changing_pass(2, 2)}).agrees);
    } catch (const Error&) {
      ++failures;
    }
    const bool hit = fake()->has_failed();
    fake()->fail_call(0, cudaSuccess);
    ctx.synchronize();
    EXPECT_EQ(pool()->stats().allocated_bytes.current, bytes);
    EXPECT_TRUE(verify(executor, inputs).agrees);
    if (!hit) break;
  }
  EXPECT_GT(failures, 50);
}

}  // namespace
}  // namespace burin::test
