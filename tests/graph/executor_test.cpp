// Executors on the CPU, and on a GPU or the fake device.

#include <burin/graph/executor.h>
#include <burin/nn/module.h>
#include <burin/runtime/memory/adaptors.h>
#include <support/graph_fixture.h>

#include <array>
#include <atomic>
#include <numeric>
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

/// Every element another one.
Tensor numbered_rows(Context& ctx, std::int64_t batch) {
  std::vector<float> values(static_cast<std::size_t>(batch * 3));
  std::iota(values.begin(), values.end(), 0.0f);
  return from_host(ctx, values, {batch, 3});
}

/// What twice_and_one makes of numbered_rows().
std::vector<float> numbered_results(std::int64_t batch) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < batch * 3; ++i) values.push_back(2 * static_cast<float>(i) + 1);
  return values;
}

std::size_t total_bytes(const ExecutorReport& report) { return report.arena_bytes + report.output_bytes; }

/// y = x + weight, with a weight that can be exchanged.
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

TEST(ExecutorsOnCpu, OutputsMustHaveTheBatchOfTheInputs) {
  Context ctx;
  GraphExecutor executor(ctx,
                         [](Context& c, Inputs) {
                           return std::vector{zeros(c, {2, 3})};
                         },
                         {.buckets = {2}});
  EXPECT_EQ(executor.run(rows(ctx, 2, 0)).shape(), Shape({2, 3}));
  expect_error<ShapeError>([&] { executor.run(rows(ctx, 1, 0)); }, "output 0 has shape [2, 3]");
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
    const Tensor y = executor.run(numbered_rows(ctx, batch));
    EXPECT_EQ(y.shape(), Shape({batch, 3}));
    EXPECT_EQ(to_vector<float>(ctx, y), numbered_results(batch)) << "batch " << batch;
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

TEST_F(Executors, G25_ARefusedInputCostsNothing) {
  Context ctx = make_context();
  Scale module;
  module.weight.set(filled(ctx, 10));
  GraphExecutor executor(ctx, module, {.most_graphs = 1});
  EXPECT_EQ(value_of(ctx, executor.run(filled(ctx, 1))), 11);
  for (int i = 0; i < 2; ++i) {
    expect_error<ShapeError>([&] { executor.run(filled(ctx, 1).reshape({2, 2})); }, "[2, 2]");  // a rank
    expect_error<ShapeError>([&] { executor.run(filled(ctx, 1, 5)); }, "[5]");  // a fixed extent
    expect_error<DTypeError>([&] { executor.run(zeros(ctx, {4}, DType::i32)); }, "i32");
  }
  EXPECT_EQ(value_of(ctx, executor.run(filled(ctx, 2))), 12);
  const ExecutorReport report = executor.report();
  EXPECT_EQ(report.captures, 1u);
  EXPECT_EQ(report.evictions, 0u);
  EXPECT_EQ(report.eager_runs, 0u);
  EXPECT_THAT(warnings(), IsEmpty());
}

TEST_F(Executors, G25_RowsComeBackInTheirPlaceFromTheHostToo) {
  Context ctx = make_context();
  Context host;
  GraphExecutor executor(ctx,
                         [](Context& c, Inputs in) {
                           return std::vector{affine(c, in[0], 2, 1), sum2(c, in[0], in[1])};
                         },
                         {.buckets = {2, 4}, .names = {"image"}});
  for (const std::int64_t batch : {3, 11, 2}) {
    const std::vector<Tensor> y =
        executor.run(std::array{numbered_rows(host, batch), numbered_rows(ctx, batch)});
    ASSERT_THAT(y, SizeIs(2));
    EXPECT_EQ(to_vector<float>(ctx, y[0]), numbered_results(batch));
    EXPECT_EQ(to_vector<float>(ctx, affine(ctx, y[1], 1, 1)), numbered_results(batch));
  }
  EXPECT_EQ(executor.report().captures, 2u);
  EXPECT_EQ(executor.report().eager_runs, 0u);
  EXPECT_THAT(warnings(), IsEmpty());
}

TEST_F(Executors, OutputsMustHaveTheBatchOfTheInputs) {
  Context ctx = make_context();
  const Tensor two = rows(ctx, 2, 0);
  GraphExecutor executor(ctx,
                         [&](Context& c, Inputs in) {
                           return std::vector{affine(c, in[0], 2, 1), affine(c, two, 1, 1)};
                         },
                         {.buckets = {1, 4}});
  for (const std::int64_t batch : {1, 4, 9})
    expect_error<ShapeError>([&] { executor.run(std::array{rows(ctx, batch, 0)}); },
                             "output 1 has shape [2, 3]");
  EXPECT_THAT(executor.report().graphs, IsEmpty());
  EXPECT_EQ(executor.report().arena_bytes, 0u);
}

TEST_F(Executors, PreparedBucketsAreNotCapturedAgain) {
  Context ctx = make_context();
  GraphExecutor executor(ctx, twice_and_one, {.buckets = {1, 4, 2}});
  expect_error<ShapeError>([&] { executor.prepare({}); }, "there must be an input");
  executor.prepare(std::array{rows(ctx, 7, 0)});
  const ExecutorReport prepared = executor.report();
  ASSERT_THAT(prepared.graphs, SizeIs(3));
  EXPECT_EQ(prepared.graphs[0].batch, 1) << "the last one";
  EXPECT_EQ(prepared.graphs[2].batch, 4) << "the first one";
  for (const std::int64_t batch : {1, 2, 3, 4, 6}) executor.run(rows(ctx, batch, 1));
  EXPECT_EQ(executor.report().captures, 3u);
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

TEST_F(Executors, OutputsMayBeInputsWeightsAndEachOther) {
  Context ctx = make_context();
  const Tensor weight = filled(ctx, 9);
  GraphExecutor executor(ctx, [&](Context& c, Inputs in) {
    const Tensor y = affine(c, in[0], 2, 0);
    return std::vector{in[0], weight, y, y, y.slice(0, 1, 3)};
  });
  const std::vector<Tensor> first = executor.run(std::array{filled(ctx, 1)});
  const std::vector<Tensor> second = executor.run(std::array{filled(ctx, 5)});
  const auto values_of = [&](const std::vector<Tensor>& tensors) {
    std::vector<float> values;
    for (const Tensor& x : tensors) values.push_back(value_of(ctx, x));
    return values;
  };
  EXPECT_THAT(values_of(first), ElementsAre(1, 9, 2, 2, 2));
  EXPECT_THAT(values_of(second), ElementsAre(5, 9, 10, 10, 10));
  EXPECT_EQ(second[4].shape(), Shape({2}));
  EXPECT_EQ(value_of(ctx, weight), 9);
  EXPECT_EQ(executor.report().replays, 2u);
}

TEST_F(Executors, OutputsMayBeInputsOfTheNextRun) {
  Context ctx = make_context();
  GraphExecutor executor(ctx, twice_and_one);
  Tensor x = filled(ctx, 0);
  for (int i = 0; i < 10; ++i) x = executor.run(x);
  EXPECT_EQ(value_of(ctx, x), 1023);
}

TEST_F(Executors, HeldOutputsOfUnusualStridesAreNotOverwritten) {
  Context ctx = make_context();
  const auto pass = [](Context& c, Inputs in) {
    return std::vector{affine(c, in[0], 2, 0).reshape({4, 1}).permute({1, 0})};
  };
  GraphExecutor executor(ctx, pass);
  const Tensor first = executor.run(filled(ctx, 1));
  const Tensor second = executor.run(filled(ctx, 5));
  EXPECT_EQ(value_of(ctx, first), 2);
  EXPECT_EQ(value_of(ctx, second), 10);
}

TEST_F(Executors, KeepNoMemoryOfOutputsThatWereExchanged) {
  Context ctx = make_context();
  const auto pass = [](Context& c, Inputs in) { return std::vector{affine(c, in[0], 2, 0)}; };
  GraphExecutor executor(ctx, pass);
  const Tensor x = filled(ctx, 1, 1 << 20);
  executor.run(x);
  const std::size_t before = pool()->stats().allocated_bytes.current;
  {
    const Tensor a = executor.run(x);
    const Tensor b = executor.run(x);
    const Tensor c = executor.run(x);
  }
  EXPECT_EQ(pool()->stats().allocated_bytes.current, before);
}

TEST_F(Executors, RunEagerlyWhereAReplayIsRefused) {
  Context ctx = make_context();
  Tensor kept;
  const auto pass = [&](Context& c, Inputs in) {
    kept = affine(c, in[0], 2, 0);
    return std::vector{affine(c, kept, 1, 1)};
  };
  GraphExecutor executor(ctx, pass, {.buckets = {2, 4}});
  for (const std::int64_t batch : {4, 2, 4, 1, 2})
    EXPECT_EQ(value_of(ctx, executor.run(filled(ctx, 3, batch * 3).reshape({batch, 3}))), 7) << batch;
  EXPECT_GT(executor.report().eager_runs, 0u);
  kept = Tensor();
}

TEST_F(Executors, NoticeANewPrecision) {
  Context ctx = make_context();
  const auto pass = [](Context& c, Inputs in) {
    return std::vector{affine(c, in[0], c.precision().allow_tf32 ? 2 : 1, 0)};
  };
  GraphExecutor executor(ctx, pass);
  for (const bool allow_tf32 : {true, false, true}) {
    ctx.set_precision({.allow_tf32 = allow_tf32});
    for (int i = 0; i < 2; ++i) EXPECT_EQ(value_of(ctx, executor.run(filled(ctx, 1))), allow_tf32 ? 2 : 1);
  }
  EXPECT_EQ(executor.report().captures, 3u);
}

TEST_F(Executors, OutputsOutliveTheirGraphs) {
  Context ctx = make_context();
  std::vector<Tensor> held;
  {
    GraphExecutor executor(ctx, twice_and_one, {.buckets = {2}, .most_graphs = 1});
    for (const std::int64_t batch : {1, 2, 5}) held.push_back(executor.run(numbered_rows(ctx, batch)));
    executor.clear();
    EXPECT_EQ(total_bytes(executor.report()), 0u);
    held.push_back(executor.run(numbered_rows(ctx, 2)));
    delay(ctx);
    held.push_back(executor.run(numbered_rows(ctx, 1)));
  }
  const Tensor other = filled(ctx, -1, 1 << 10);
  for (const Tensor& y : held) EXPECT_EQ(to_vector<float>(ctx, y), numbered_results(y.extent(0)));
}

TEST_F(Executors, WarmUpsDoNotTouchTheCallersInputs) {
  Context ctx = make_context();
  GraphExecutor executor(ctx, [](Context& c, Inputs in) {
    Tensor x = in[0];
    affine_into(c, x, x, 1, 1);
    return std::vector{affine(c, x, 1, 0)};
  });
  EXPECT_EQ(value_of(ctx, executor.run(filled(ctx, 1))), 2) << "one run, as on the CPU";
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

TEST_F(Executors, ErrorsOfThePassAreThrownOn) {
  Context ctx = make_context();
  GraphExecutor executor(ctx, [](Context& c, Inputs in) { return std::vector{sum2(c, in[0], in[1])}; });
  expect_error<ShapeError>([&] { executor.run(std::array{filled(ctx, 1, 4), filled(ctx, 1, 5)}); }, "sum2");
  EXPECT_EQ(value_of(ctx, executor.run(std::array{filled(ctx, 1), filled(ctx, 2)})[0]), 3);
  EXPECT_THAT(warnings(), IsEmpty());
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
