// Timelines: the arithmetic on values that are given, the trace read back, and twins of graphs on the fake
// device, whose clock moves by one step with each operation, or on a GPU.

#include <burin/graph/timeline.h>
#include <burin/graph/timeline_twin.h>
#include <burin/runtime/name_scope.h>
#include <support/graph_fixture.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace burin::test {
namespace {

using ::testing::ElementsAre;
using Span = GraphTimeline::Span;

TEST(TimelineMedian, IsTheMiddle) {
  EXPECT_EQ(detail::median({7}), 7);
  EXPECT_EQ(detail::median({9, 1}), 5);
  EXPECT_EQ(detail::median({9, 1, 2}), 2);
  EXPECT_EQ(detail::median({100, 4, 1, 2}), 3);
}

TEST(TimelineSpans, FollowEachOtherWithoutTheEvents) {
  std::vector<Span> spans(3);
  detail::place_spans(spans, {{5, 1, 40}, {3, 1.5, 10}, {4, 90, 10}}, 2);
  EXPECT_EQ(spans[0].begin_us, 0);
  EXPECT_EQ(spans[0].duration_us, 2);
  EXPECT_EQ(spans[1].begin_us, 2);
  EXPECT_EQ(spans[1].duration_us, 0) << "an event may have been quicker than usual";
  EXPECT_EQ(spans[2].begin_us, 2);
  EXPECT_EQ(spans[2].duration_us, 8);
  GraphTimeline timeline;
  EXPECT_EQ(timeline.sum_us(), 0);
  timeline.spans = spans;
  EXPECT_EQ(timeline.sum_us(), 10);
}

TEST(TimelineTrace, IsChromesFormat) {
  GraphTimeline timeline;
  EXPECT_EQ(nlohmann::json::parse(timeline.to_chrome_trace()).at("traceEvents").size(), 1u);  // the name
  timeline.event_us = 0.25;
  timeline.whole_us = 12.3456;
  const Device device = Device::cpu();
  timeline.spans.push_back(
      {.op = {.name = "conv2d",
              .path = "layer \"1\"\\\xff",
              .inputs = {dense_spec(DType::f16, {2, 3}, device), dense_spec(DType::f32, {}, device)},
              .output = dense_spec(DType::bf16, {4}, device),
              .bytes = 5000000000},
       .kernels = "conv2d, library",
       .begin_us = 0.5,
       .duration_us = 1234567.8904});
  timeline.spans.emplace_back();
  const nlohmann::json trace = nlohmann::json::parse(timeline.to_chrome_trace());
  EXPECT_EQ(trace.at("otherData"), nlohmann::json({{"whole_us", 12.346}, {"event_us", 0.25}}));
  ASSERT_EQ(trace.at("traceEvents").size(), 3u);
  EXPECT_EQ(trace.at("traceEvents")[1], nlohmann::json({{"ph", "X"},
                                                        {"cat", "op"},
                                                        {"name", "conv2d"},
                                                        {"ts", 0.5},
                                                        {"dur", 1234567.89},
                                                        {"pid", 1},
                                                        {"tid", 1},
                                                        {"args",
                                                         {{"path", "layer \"1\"\\\xEF\xBF\xBD"},
                                                          {"inputs", {"f16 [2, 3]", "f32 []"}},
                                                          {"output", "bf16 [4]"},
                                                          {"bytes", 5000000000},
                                                          {"kernels", "conv2d, library"}}}}));
  EXPECT_EQ(trace.at("traceEvents")[2].at("args").at("inputs"), nlohmann::json::array());
}

TEST(Timeline, NeedsAGraph) {
  Context cpu;
  const Forward forward = [](Context&, std::span<const Tensor>) { return std::vector<Tensor>(); };
  expect_error<CaptureError>([&] { timeline(cpu, forward, {}); }, "timeline: the context is of the CPU");
  expect_error<ShapeError>([&] { timeline(cpu, forward, {}, 0); }, "repetitions (0)");
}

/// Three operators, the second by other means than a kernel of Burin's.
std::vector<Tensor> forward(Context& ctx, std::span<const Tensor> inputs) {
  const NameScope scope(ctx, "net");
  const Tensor x = affine(ctx, inputs[0], 2, 1);
  const Tensor y = hidden(ctx, x);
  return {sum2(ctx, x, y)};
}

class TimelineOnCuda : public OnGraphs {};

TEST_F(TimelineOnCuda, NamesAndTimesEachOperator) {
  Context ctx = make_context();
  const std::vector<Tensor> inputs = {filled(ctx, 3, 1000)};
  const GraphTimeline times = timeline(ctx, forward, inputs, 5);
  ASSERT_EQ(times.spans.size(), 3u);
  const auto each = [&](auto&& get) {
    std::vector<decltype(get(times.spans[0]))> all;
    for (const Span& span : times.spans) all.push_back(get(span));
    return all;
  };
  EXPECT_THAT(each([](const Span& span) { return span.op.name; }), ElementsAre("affine", "hidden", "sum2"));
  EXPECT_THAT(each([](const Span& span) { return span.op.path; }), ElementsAre("net", "net", "net"));
  EXPECT_THAT(each([](const Span& span) { return span.kernels; }), ElementsAre("affine", "copy", "sum2"));
  EXPECT_THAT(each([](const Span& span) { return span.op.bytes; }), ElementsAre(8000u, 8000u, 12000u));
  EXPECT_EQ(times.spans[2].op.output, dense_spec(DType::f32, {1000}, ctx.device()));
  EXPECT_GT(times.event_us, 0);
  if (!fake()) return;
  const double step = times.event_us;  // of the clock: each node is one
  const auto in_steps = [&](double us) { return ::testing::DoubleNear(us * step, 1e-3 * step); };
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(times.spans[i].begin_us, in_steps(i));
    EXPECT_THAT(times.spans[i].duration_us, in_steps(1));
  }
  EXPECT_THAT(times.whole_us, in_steps(3));
}

TEST_F(TimelineOnCuda, AddsUpToTheWhole) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1, fake() ? 64 : 1 << 24);
  const auto copies = [&] { return fake() ? fake()->call_count("cudaMemcpyAsync") : 0; };
  const std::uint64_t copies_before = copies();
  const auto chain = [](Context& local, std::span<const Tensor> inputs) {
    Tensor y = affine(local, inputs[0], 0.5f, 1);
    for (int i = 0; i < 9; ++i) y = affine(local, y, 0.5f, 1);
    return std::vector<Tensor>{y};
  };
  const GraphTimeline times = timeline(ctx, chain, {&x, 1}, fake() ? 2 : 50);
  EXPECT_EQ(times.spans.size(), 10u);
  EXPECT_NEAR(times.sum_us(), times.whole_us, 0.1 * times.whole_us);
  EXPECT_EQ(copies(), copies_before) << "the twins read the input where it is, as the graph would";
}

TEST_F(TimelineOnCuda, CountsWhatRunsOutsideOperatorsToTheNextOne) {
  Context ctx = make_context();
  Tensor scratch = filled(ctx, 0);
  const Tensor x = filled(ctx, 1);
  const auto pass = [&](Context& local, std::span<const Tensor> inputs) {
    for (int i = 0; i < 2; ++i)
      cuda::copy_bytes(local.stream(), scratch.raw(), inputs[0].raw(), inputs[0].bytes());
    Tensor y = affine(local, inputs[0], 2, 0);
    cuda::copy_bytes(local.stream(), scratch.raw(), y.raw(), y.bytes());
    return std::vector<Tensor>{y};
  };
  const GraphTimeline times = timeline(ctx, pass, {&x, 1}, 1);
  ASSERT_EQ(times.spans.size(), 1u);
  EXPECT_EQ(times.spans[0].kernels, "copy, affine");
  if (!fake()) return;
  EXPECT_NEAR(times.spans[0].duration_us, 3 * times.event_us, 1e-3 * times.event_us);
  EXPECT_NEAR(times.whole_us, 4 * times.event_us, 1e-3 * times.event_us);
}

TEST_F(TimelineOnCuda, OfNothingIsEmpty) {
  Context ctx = make_context();
  const auto pass = [](Context&, std::span<const Tensor>) { return std::vector<Tensor>(); };
  const GraphTimeline times = timeline(ctx, pass, {}, 1);
  EXPECT_TRUE(times.spans.empty());
  EXPECT_EQ(times.sum_us(), 0);
  EXPECT_THAT(warnings(), ::testing::IsEmpty());
}

TEST_F(TimelineOnCuda, LeavesTheContextAsItWas) {
  Context ctx = make_context();
  const std::vector<Tensor> inputs = {filled(ctx, 3)};
  timeline(ctx, forward, inputs, 1);
  EXPECT_EQ(value_of(ctx, inputs[0]), 3);
  EXPECT_EQ(value_of(ctx, forward(ctx, inputs)[0]), 14);
  EXPECT_EQ(pool()->stats().out_of_memory, 0u);
}

TEST_F(TimelineOnCuda, OfAnExecutorIsOfItsPass) {
  Context ctx = make_context();
  GraphExecutor executor(ctx, forward, {.buckets = {8}});
  const Tensor x = filled(ctx, 3);
  const GraphTimeline times = timeline(executor, {&x, 1}, 1);
  ASSERT_EQ(times.spans.size(), 3u);
  EXPECT_EQ(times.spans[0].op.output.shape, Shape({4}));
  EXPECT_EQ(executor.report().captures, 0u);
  EXPECT_EQ(value_of(ctx, executor.run(x)), 14);
}

TEST(TimelineFaults, EveryCallMayFail) {
  bool hit = true;
  std::uint64_t call = 0;
  while (hit && !::testing::Test::HasFailure()) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, "call " + std::to_string(++call));
    FakeCuda fake;
    register_graph_ops(fake);
    {
      ContextOptions options;
      options.memory = std::make_shared<CachingPool>(Device::cuda(0));
      options.threads = 1;
      Context ctx(Device::cuda(0), std::move(options));
      const Tensor x = from_host(ctx, std::vector<float>(4, 3), {4});
      ctx.synchronize();
      const FakeCuda::Live before = fake.live();
      fake.fail_call(call, cudaErrorNotSupported);
      try {
        EXPECT_EQ(timeline(ctx, forward, {&x, 1}, 1).spans.size(), 3u);
      } catch (const Error&) {
      }
      hit = fake.has_failed();
      fake.fail_call(0, cudaSuccess);
      EXPECT_EQ(to_vector<float>(ctx, forward(ctx, {&x, 1})[0]), std::vector<float>(4, 14));
      EXPECT_EQ(fake.live().graphs, before.graphs);
      EXPECT_EQ(timeline(ctx, forward, {&x, 1}, 1).spans.size(), 3u);
    }
    EXPECT_THAT(fake.violations(), ::testing::IsEmpty());
    const FakeCuda::Live left = fake.live();  // memory is kept for ever where a wait for its last use failed
    EXPECT_EQ(left.streams, 0u);
    EXPECT_EQ(left.events, 0u);
    EXPECT_EQ(left.graphs, 0u);
  }
  EXPECT_GT(call, 300u);
}

}  // namespace
}  // namespace burin::test
