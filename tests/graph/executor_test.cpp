// Executors on the CPU, and on a GPU or the fake device.

#include <burin/graph/executor.h>
#include <burin/nn/module.h>
#include <burin/runtime/memory/adaptors.h>
#include <support/graph_fixture.h>

#include <array>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

namespace burin::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Inputs = std::span<const Tensor>;

std::vector<Tensor> twice_and_one(Context& ctx, Inputs in) {
  return {affine(ctx, affine(ctx, in[0], 2, 0), 1, 1)};
}

Tensor rows(Context& ctx, std::int64_t batch, float value) {
  return from_host(ctx, std::vector<float>(static_cast<std::size_t>(batch * 3), value), {batch, 3});
}

/// y = scale * x, with a weight that can be exchanged.
class Scale final : public nn::Module {
 public:
  Tensor forward(Context& ctx, const Tensor& x) const override {
    return sum2(ctx, x, weight.value("Scale: weight"));
  }
  void list(nn::Members& m) override { m.add("weight", weight); }
  nn::Parameter weight{Shape({4})};
};

class Executors : public OnGraphs {};

TEST(ExecutorsOnCpu, RunTheSamePassWithTheSameInterface) {
  Context ctx;
  GraphExecutor executor(ctx, twice_and_one, {.buckets = {4, 2}});
  const std::vector<float> expected(9, 5);
  EXPECT_EQ(to_vector<float>(ctx, executor.run(rows(ctx, 3, 2))), expected);
  executor.prepare(std::array{rows(ctx, 1, 0)});
  const ExecutorReport report = executor.report();
  EXPECT_THAT(report.graphs, IsEmpty());
  EXPECT_EQ(report.eager_runs, 1u);
  EXPECT_THAT(report.errors, IsEmpty());
}

TEST(ExecutorsOnCpu, RefuseWhatDoesNotFit) {
  Context ctx;
  expect_error<ShapeError>([&] { GraphExecutor(ctx, twice_and_one, {.buckets = {0}}); }, "bucket (0)");
  expect_error<Error>([&] { GraphExecutor(ctx, Forward()); }, "callable is empty");
  GraphExecutor executor(ctx, twice_and_one, {.buckets = {4}, .names = {"image"}});
  expect_error<ShapeError>([&] { executor.run(Tensor()); }, "image is undefined");
  expect_error<ShapeError>([&] { executor.run(full(ctx, {}, 1)); }, "image is a scalar");
  expect_error<ShapeError>(
      [&] {
        executor.run(std::array{rows(ctx, 2, 0), rows(ctx, 3, 0)});
      },
      "batch of input 1 (3) must equal that of image (2)");
}

TEST(ExecutorsOnCpu, G22_ThreadsShareOne) {
  Context ctx;
  GraphExecutor executor(ctx, twice_and_one);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      const std::vector<float> values(4, static_cast<float>(t));
      const Tensor x = Tensor::from_blob(const_cast<float*>(values.data()), {4}, DType::f32);
      for (int i = 0; i < 100; ++i)
        if (executor.run(x).data<float>()[3] != 2 * static_cast<float>(t) + 1) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Executors, G25_EveryBatchRunsRight) {
  Context ctx = make_context();
  GraphExecutor executor(ctx, twice_and_one, {.buckets = {1, 4}});
  for (const std::int64_t batch : {1, 3, 1, 0, 4, 9}) {
    const Tensor y = executor.run(rows(ctx, batch, 2));
    EXPECT_EQ(y.shape(), Shape({batch, 3}));
    EXPECT_THAT(to_vector<float>(ctx, y), ::testing::Each(5)) << "batch " << batch;
  }
  const ExecutorReport report = executor.report();
  EXPECT_THAT(report.graphs, SizeIs(2));
  EXPECT_EQ(report.captures, 2u);
  EXPECT_EQ(report.replays, 7u) << "9 rows are 4 + 4 + 1";
  EXPECT_EQ(report.eager_runs, 1u) << "no rows";
  EXPECT_THAT(report.to_string(), HasSubstr("2 graphs"));
}

TEST_F(Executors, G25_WithoutBucketsEachSignatureHasItsGraph) {
  Context ctx = make_context();
  GraphExecutor executor(ctx, twice_and_one, {.most_graphs = 2});
  for (const std::int64_t batch : {1, 3, 1, 5, 1, 3})
    EXPECT_THAT(to_vector<float>(ctx, executor.run(rows(ctx, batch, 1))), ::testing::Each(3));
  const ExecutorReport report = executor.report();
  EXPECT_THAT(report.graphs, SizeIs(2));
  EXPECT_EQ(report.captures, 4u) << "1, 3, 5, and 3 again, which was used longest ago when 5 came";
  EXPECT_EQ(report.evictions, 2u);
}

TEST_F(Executors, LargestBucketFirstCostsTheLargest) {
  constexpr std::int64_t kRow = 1 << 20;
  Context ctx = make_context();
  const auto memory_of = [&](std::vector<std::int64_t> buckets) {
    GraphExecutor executor(ctx, twice_and_one, {.buckets = std::move(buckets)});
    executor.prepare(std::array{empty(ctx, {1, kRow})});
    return executor.report().arena_bytes;
  };
  EXPECT_EQ(memory_of({1, 2, 4, 8}), memory_of({8}));
}

TEST_F(Executors, OutputsThatAreHeldAreNotOverwritten) {
  Context ctx = make_context();
  GraphExecutor executor(ctx, twice_and_one);
  std::vector<Tensor> held;
  for (int i = 0; i < 5; ++i) held.push_back(executor.run(filled(ctx, static_cast<float>(i))));
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(value_of(ctx, held[static_cast<std::size_t>(i)]), 2 * static_cast<float>(i) + 1);
  const void* last = held.back().raw();
  held.clear();
  EXPECT_EQ(executor.run(filled(ctx, 7)).raw(), last) << "memory that nobody holds serves again";
}

TEST_F(Executors, OutputsOfLibrariesAreCopied) {
  Context ctx = make_context();
  GraphExecutor executor(ctx, [](Context& c, Inputs in) { return std::vector{hidden(c, in[0])}; });
  const Tensor first = executor.run(filled(ctx, 1));
  const Tensor second = executor.run(filled(ctx, 2));
  EXPECT_EQ(value_of(ctx, first), 1);
  EXPECT_EQ(value_of(ctx, second), 2);
}

TEST_F(Executors, HostInputsAreCopied) {
  Context ctx = make_context();
  GraphExecutor executor(ctx, twice_and_one);
  for (float value = 0; value < 3; ++value) {
    std::vector<float> values(4, value);
    const Tensor x = Tensor::from_blob(values.data(), {4}, DType::f32);
    EXPECT_EQ(value_of(ctx, executor.run(x)), 2 * value + 1);
  }
  EXPECT_EQ(executor.report().captures, 1u);
}

TEST_F(Executors, NewWeightsAreNoticed) {
  Context ctx = make_context();
  Scale module;
  module.weight.set(filled(ctx, 10));
  GraphExecutor executor(ctx, module);
  EXPECT_EQ(value_of(ctx, executor.run(filled(ctx, 1))), 11);
  EXPECT_EQ(value_of(ctx, executor.run(filled(ctx, 2))), 12);
  EXPECT_EQ(executor.report().captures, 1u);
  module.weight.set(filled(ctx, 20));
  EXPECT_EQ(value_of(ctx, executor.run(filled(ctx, 1))), 21);
  EXPECT_EQ(executor.report().captures, 2u);
}

TEST_F(Executors, WhatCannotBeCapturedRunsEagerlyWithOneWarning) {
  Context ctx = make_context();
  const auto waits = [](Context& c, Inputs in) {
    c.synchronize();
    return twice_and_one(c, in);
  };
  GraphExecutor executor(ctx, waits);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(value_of(ctx, executor.run(filled(ctx, 1))), 3);
  ASSERT_THAT(warnings(), SizeIs(1));
  EXPECT_THAT(warnings()[0], HasSubstr("cudaStreamSynchronize"));
  EXPECT_THAT(executor.report().errors, SizeIs(1));
  EXPECT_EQ(executor.report().eager_runs, 3u);

  GraphExecutor strict(ctx, waits, {.strict = true});
  expect_error<CaptureError>([&] { strict.run(filled(ctx, 1)); }, "cudaStreamSynchronize");
}

TEST_F(Executors, ErrorsOfThePassAreThrownOn) {
  Context ctx = make_context();
  GraphExecutor executor(ctx, [](Context& c, Inputs in) { return std::vector{sum2(c, in[0], in[1])}; });
  expect_error<ShapeError>([&] { executor.run(std::array{filled(ctx, 1, 4), filled(ctx, 1, 5)}); }, "sum2");
  EXPECT_EQ(value_of(ctx, executor.run(std::array{filled(ctx, 1), filled(ctx, 2)})[0]), 3);
  EXPECT_THAT(warnings(), IsEmpty());
}

TEST_F(Executors, AGraphBeyondTheBudgetRunsEagerly) {
  constexpr std::int64_t kCount = 4 << 20;  // 16 MiB
  Context ctx = make_context();
  GraphExecutor executor(ctx, twice_and_one, {.most_bytes = std::size_t{30} << 20});
  EXPECT_EQ(value_of(ctx, executor.run(filled(ctx, 1, kCount))), 3);
  EXPECT_THAT(executor.report().graphs, IsEmpty());
  EXPECT_EQ(executor.report().arena_bytes, 0u);
  EXPECT_THAT(warnings(), SizeIs(1));
  EXPECT_EQ(value_of(ctx, executor.run(filled(ctx, 1))), 3);
  EXPECT_THAT(executor.report().graphs, SizeIs(1));
}

TEST_F(Executors, TheGraphUsedLongestAgoMakesRoom) {
  constexpr std::int64_t kCount = 4 << 20;
  Context ctx = make_context();
  GraphExecutor executor(ctx, twice_and_one, {.most_bytes = std::size_t{70} << 20});
  for (const std::int64_t count : {kCount, kCount + 1, kCount, kCount + 2, kCount})
    EXPECT_EQ(value_of(ctx, executor.run(filled(ctx, 1, count))), 3);
  const ExecutorReport report = executor.report();
  EXPECT_LE(report.arena_bytes + report.output_bytes, std::size_t{70} << 20);
  EXPECT_GE(report.evictions, 1u);
  EXPECT_THAT(report.errors, IsEmpty());
}

TEST_F(Executors, ForecastsTellWhatAGraphNeeds) {
  constexpr std::int64_t kRow = 1 << 20;
  Context ctx = make_context();
  GraphExecutor executor(ctx, twice_and_one, {.buckets = {1, 4}});
  const std::vector<GraphForecast> forecasts = executor.forecast(std::array{empty(ctx, {1, kRow})});
  ASSERT_THAT(forecasts, SizeIs(2));
  EXPECT_EQ(forecasts[1].batch, 4);
  EXPECT_EQ(forecasts[1].output_bytes, 4u * 4 * kRow);
  executor.prepare(std::array{empty(ctx, {1, kRow})});
  const std::size_t arena = executor.report().arena_bytes;
  EXPECT_GE(forecasts[1].arena_bytes, arena / 2);
  EXPECT_LE(forecasts[1].arena_bytes, arena);
}

TEST_F(Executors, G22_ThreadsShareOneOnTheDevice) {
  Context ctx = make_context();
  GraphExecutor executor(ctx, twice_and_one);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      Context own = make_context();
      const Tensor x = filled(own, static_cast<float>(t));
      own.synchronize();
      for (int i = 0; i < 20; ++i) {
        const Tensor y = executor.run(x);
        own.stream().wait(ctx.stream());
        if (to_vector<float>(own, y)[0] != 2 * static_cast<float>(t) + 1) ++wrong;
        y.record_use(own.stream());
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace burin::test
