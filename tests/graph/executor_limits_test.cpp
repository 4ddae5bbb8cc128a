// What an executor does with graphs that there is no room for, or that cannot be made.

#include <burin/graph/executor.h>
#include <burin/nn/models/resnet.h>
#include <burin/runtime/memory/adaptors.h>
#include <support/graph_fixture.h>

#include <iostream>
#include <memory>
#include <vector>

#include <gmock/gmock.h>

namespace burin::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Inputs = std::span<const Tensor>;

std::vector<Tensor> twice_and_one(Context& ctx, Inputs in) {
  return {affine(ctx, affine(ctx, in[0], 2, 0), 1, 1)};
}

/// Makes the host wait, so that it cannot be captured, for more than four elements.
std::vector<Tensor> waits_beyond_four(Context& ctx, Inputs in) {
  if (in[0].count() > 4) ctx.synchronize();
  return twice_and_one(ctx, in);
}

std::size_t total_bytes(const ExecutorReport& report) { return report.arena_bytes + report.output_bytes; }

class ExecutorLimits : public OnGraphs {};

TEST_F(ExecutorLimits, WhatCannotBeCapturedRunsEagerlyWithOneWarning) {
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

TEST_F(ExecutorLimits, WhatRunsEagerlyTakesNoPlaceOfAGraph) {
  Context ctx = make_context();
  GraphExecutor executor(ctx, waits_beyond_four, {.most_graphs = 1});
  for (const std::int64_t count : {4, 5, 4, 5}) executor.run(filled(ctx, 1, count));
  const ExecutorReport report = executor.report();
  EXPECT_EQ(report.captures, 1u);
  EXPECT_EQ(report.replays, 2u);
  EXPECT_EQ(report.eager_runs, 2u);
  EXPECT_EQ(report.evictions, 0u);
  EXPECT_THAT(warnings(), SizeIs(1));
}

TEST_F(ExecutorLimits, TheLastSixteenErrorsAreKept) {
  Context ctx = make_context();
  GraphExecutor executor(ctx, waits_beyond_four);
  for (std::int64_t count = 5; count < 25; ++count) executor.run(filled(ctx, 1, count));
  const std::vector<std::string> errors = executor.report().errors;
  ASSERT_THAT(errors, SizeIs(16));
  EXPECT_THAT(errors.front(), HasSubstr("f32 [9]"));
  EXPECT_THAT(errors.back(), HasSubstr("f32 [24]"));
  EXPECT_THAT(warnings(), SizeIs(20));
  EXPECT_THAT(executor.report().to_string(), HasSubstr("f32 [24]"));
}

TEST_F(ExecutorLimits, AGraphBeyondTheBudgetRunsEagerly) {
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

TEST_F(ExecutorLimits, TheGraphUsedLongestAgoMakesRoom) {
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

TEST_F(ExecutorLimits, AGraphBeyondTheBudgetCostsNoOtherItsPlace) {
  constexpr std::int64_t kCount = 4 << 20;
  Context ctx = make_context();
  GraphExecutor executor(ctx, twice_and_one, {.most_bytes = std::size_t{30} << 20});
  for (const std::int64_t count : {std::int64_t{4}, kCount, std::int64_t{4}, kCount})
    EXPECT_EQ(value_of(ctx, executor.run(filled(ctx, 1, count))), 3);
  const ExecutorReport report = executor.report();
  EXPECT_EQ(report.captures, 1u);
  EXPECT_EQ(report.replays, 2u);
  EXPECT_EQ(report.evictions, 0u);
  EXPECT_LE(total_bytes(report), std::size_t{30} << 20);
}

TEST_F(ExecutorLimits, WhatIsBeyondTheBudgetIsToldOnceWhateverElseIsEvicted) {
  constexpr std::int64_t kMiB = 1 << 18;  // elements
  Context ctx = make_context();
  GraphExecutor executor(ctx, twice_and_one, {.most_bytes = std::size_t{30} << 20});
  for (int i = 0; i < 2; ++i)
    for (const std::int64_t count : {16 * kMiB, 8 * kMiB, 7 * kMiB})
      EXPECT_EQ(value_of(ctx, executor.run(filled(ctx, 1, count))), 3);
  EXPECT_EQ(executor.report().evictions, 3u) << "8 and 7 MiB have no room together";
  EXPECT_THAT(warnings(), SizeIs(1));
}

TEST_F(ExecutorLimits, PaddedInputsCountToTheBudget) {
  constexpr std::int64_t kRow = 1 << 20;  // 4 MiB; 4 rows take 16 each as input, between and as output
  constexpr std::size_t kBudget = std::size_t{60} << 20;
  Context ctx = make_context();
  GraphExecutor executor(ctx, twice_and_one, {.buckets = {4}, .most_bytes = kBudget});
  for (const std::int64_t batch : {4, 3}) {
    EXPECT_EQ(value_of(ctx, executor.run(filled(ctx, 1, batch * kRow).reshape({batch, kRow}))), 3);
    EXPECT_LE(total_bytes(executor.report()), kBudget) << "batch " << batch;
  }
  EXPECT_THAT(warnings(), SizeIs(1));
}

TEST_F(ExecutorLimits, StrictOnesRefuseWhatIsBeyondTheBudgetEachTime) {
  Context ctx = make_context();
  GraphExecutor executor(ctx, twice_and_one, {.most_bytes = 1000, .strict = true});
  for (int i = 0; i < 2; ++i) expect_error<CaptureError>([&] { executor.run(filled(ctx, 1)); }, "most_bytes");
  EXPECT_EQ(executor.report().eager_runs, 0u);
  EXPECT_EQ(total_bytes(executor.report()), 0u);
}

TEST_F(ExecutorLimits, AnAllocationThatFailsAnywhereLeavesNothingBehind) {
  constexpr std::int64_t kMiB = 1 << 18;
  constexpr std::size_t kBudget = std::size_t{12} << 20;
  const auto failing = std::make_shared<FailingResource>(pool());
  Context ctx = make_context(failing);
  const Forward forward = [](Context& c, Inputs in) {
    affine(c, in[0], 1, 0);
    return std::vector{affine(c, in[1], 2, 1)};
  };
  // The first graph needs a pool too large for the second one, which starts another pool for itself.
  const std::vector<std::vector<Tensor>> inputs = {{filled(ctx, 1, 4 * kMiB), filled(ctx, 1, kMiB)},
                                                   {filled(ctx, 1, kMiB), filled(ctx, 1, 3 * kMiB)}};
  const auto run = [&](GraphExecutor& executor, const std::vector<Tensor>& given) {
    return value_of(ctx, executor.run(given)[0]);
  };
  for (const bool strict : {true, false}) {
    bool fired = true;
    for (std::uint64_t nth = 1; fired; ++nth) {
      GraphExecutor executor(ctx, forward, {.most_bytes = kBudget, .strict = strict});
      failing->arm({.nth = nth});
      for (const std::vector<Tensor>& given : inputs) {
        try {
          EXPECT_EQ(run(executor, given), 3);
        } catch (const OutOfMemory&) {
          EXPECT_TRUE(failing->fired());
        }
      }
      fired = failing->fired();
      failing->disarm();
      EXPECT_TRUE(fired || executor.report().captures == 3) << "the second signature is captured twice";
      for (const std::vector<Tensor>& given : inputs) EXPECT_EQ(run(executor, given), 3);
      EXPECT_LE(total_bytes(executor.report()), kBudget);
      if (strict) {
        EXPECT_EQ(executor.report().eager_runs, 0u) << "after failure " << nth;
      } else {
        EXPECT_LE(executor.report().errors.size(), 1u) << "after failure " << nth;
      }
    }
  }
}

TEST_F(ExecutorLimits, ACallThatFailsAnywhereLeavesResultsRight) {
  if (!fake()) GTEST_SKIP() << "calls fail on the fake device only";
  const auto rows = [](Context& ctx, std::int64_t batch) {
    return filled(ctx, 1, batch * 3).reshape({batch, 3});
  };
  for (const cudaError_t code : {cudaErrorNotPermitted, cudaErrorMemoryAllocation}) {
    bool hit = true;
    for (std::uint64_t n = 1; hit; ++n) {
      const ::testing::Message where = ::testing::Message() << "call " << n << ", code " << code;
      Context ctx = make_context();
      GraphExecutor executor(ctx, twice_and_one, {.buckets = {2, 4}});
      std::vector<Tensor> held;
      fake()->fail_call(n, code);
      for (const std::int64_t batch : {3, 2, 6, 3}) {
        try {
          held.push_back(executor.run(rows(ctx, batch)));
        } catch (const Error&) {
          EXPECT_TRUE(fake()->has_failed()) << where;
        }
      }
      hit = fake()->has_failed();
      fake()->fail_call(0, cudaSuccess);
      for (const std::int64_t batch : {1, 2, 4, 5}) held.push_back(executor.run(rows(ctx, batch)));
      for (const Tensor& y : held) EXPECT_EQ(value_of(ctx, y), 3) << where;
      const ExecutorReport report = executor.report();
      EXPECT_LE(report.errors.size(), 1u) << where;
      EXPECT_EQ(report.graphs.size() + report.errors.size(), 2u) << where;
    }
  }
}

TEST_F(ExecutorLimits, EightBatchesOfResNet18CostTheLargest) {
  if (fake()) GTEST_SKIP() << "the fake device has no kernels of convolutions";
  Context ctx = make_context();
  nn::ResNet model = nn::resnet18();
  model.init(ctx, 1);
  const auto arena_of = [&](std::vector<std::int64_t> buckets) {
    GraphExecutor executor(ctx, model, {.buckets = std::move(buckets), .strict = true});
    executor.prepare(std::vector<Tensor>{zeros(ctx, {1, 3, 224, 224})});
    return executor.report().arena_bytes;
  };
  const std::size_t alone = arena_of({64});
  const std::size_t all = arena_of({1, 2, 4, 8, 16, 24, 32, 64});
  std::cout << "  batch 64 alone " << alone << " bytes, with seven others " << all << " bytes\n";
  EXPECT_GT(alone, 0u);
  EXPECT_LE(10 * all, 11 * alone);
}

}  // namespace
}  // namespace burin::test
