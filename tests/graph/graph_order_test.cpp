// In what order graphs run, on several streams, devices and pools, and as parts of a caller's own graph.

#include <burin/graph/capture.h>
#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/event.h>
#include <support/graph_fixture.h>

#include <array>
#include <optional>
#include <thread>

namespace burin::test {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

using Inputs = std::span<const Tensor>;

cudaStream_t native(StreamView stream) { return static_cast<cudaStream_t>(stream.native_handle()); }

class GraphOrder : public OnGraphs {
 protected:
  /// b <- 2 (b + v), five times.
  static Tensor chain(Context& ctx, Tensor b, float v) {
    for (int i = 0; i < 5; ++i) b = affine(ctx, b, 2, 2 * v);
    return b;
  }
  /// Two graphs of that, from ones, with v = 1 and 2: replayed in both orders on two streams, with their
  /// results cleared between.
  void expect_right_at_once(Context& one, CudaGraph& first, Tensor b1, Context& two, CudaGraph& second,
                            Tensor b2) {
    std::vector<Tensor> firsts;
    std::vector<Tensor> seconds;
    const auto run_first = [&] {
      affine_into(one, b1, b1, 0, -1);
      first.replay(one.stream());
      firsts.push_back(affine(one, b1, 1, 0));
    };
    const auto run_second = [&] {
      affine_into(two, b2, b2, 0, -1);
      second.replay(two.stream());
      seconds.push_back(affine(two, b2, 1, 0));
    };
    for (int i = 0; i < 20; ++i) {
      if (i % 3 == 0) delay(i % 2 == 0 ? one : two);
      if (i % 2 == 0) run_first();
      run_second();
      if (i % 2 == 1) run_first();
    }
    for (const Tensor& result : firsts) EXPECT_EQ(value_of(one, result), 94);
    for (const Tensor& result : seconds) EXPECT_EQ(value_of(two, result), 156);
  }
  template <class Body>
  static cudaGraph_t capture_raw(StreamView stream, Body body) {
    BURIN_CUDA("test", cudaStreamBeginCapture, native(stream), cudaStreamCaptureModeThreadLocal);
    body();
    cudaGraph_t graph = nullptr;
    BURIN_CUDA("test", cudaStreamEndCapture, native(stream), &graph);
    return graph;
  }
  /// Runs the graph of a caller, and lets go of it.
  static void launch_once(cudaGraph_t graph, StreamView stream) {
    cudaGraphExec_t exec = nullptr;
    BURIN_CUDA("test", cudaGraphInstantiate, &exec, graph, 0);
    BURIN_CUDA("test", cudaGraphLaunch, exec, native(stream));
    stream.synchronize();
    BURIN_CUDA("test", cudaGraphExecDestroy, exec);
  }
};

constexpr std::int64_t kChainCount = 100'000;

TEST_F(GraphOrder, G15_GraphsWithPoolsOfTheirOwnRunAtOnce) {
  Context one = make_context();
  Context two = make_context();
  const Tensor ones = filled(one, 1, kChainCount);
  CudaGraph first;
  CudaGraph second;
  first.capture_begin(one);
  const Tensor b1 = chain(one, ones, 1);
  first.capture_end();
  second.capture_begin(two);
  const Tensor b2 = chain(two, ones, 2);
  second.capture_end();
  expect_right_at_once(one, first, b1, two, second, b2);
}

TEST_F(GraphOrder, G15_GraphsOnOnePoolTakeTurns) {
  Context one = make_context();
  Context two = make_context();
  const Tensor ones = filled(one, 1, kChainCount);
  const CaptureOptions shared{.pool = make_graph_pool(one)};
  const auto forward = [](float v) {
    return [v](Context& c, Inputs in) { return std::vector{chain(c, in[0], v)}; };
  };
  CudaGraph first = capture(one, forward(1), {ones}, shared);
  CudaGraph second = capture(two, forward(2), {ones}, shared);
  expect_right_at_once(one, first, first.outputs()[0], two, second, second.outputs()[0]);
}

TEST_F(GraphOrder, ReplaysOnOtherStreamsFollowEachOther) {
  Context ctx = make_context();
  Context other = make_context();
  Tensor x = filled(ctx, 0);
  CudaGraph graph;
  graph.capture_begin(ctx);
  affine_into(ctx, x, x, 1, 1);
  affine_into(ctx, x, x, 1, 1);
  graph.capture_end();
  other.stream().wait(ctx.stream());
  for (int i = 0; i < 100; ++i) graph.replay(i % 2 == 0 ? ctx.stream() : other.stream());
  ctx.stream().wait(other.stream());
  EXPECT_EQ(value_of(ctx, x), 200);
  const Stream third(Device::cuda());
  third.wait(ctx.stream());
  graph.replay(third);
  third.synchronize();
  EXPECT_EQ(value_of(ctx, x), 202);
}

TEST_F(GraphOrder, ARefusedReplayLeavesNoWait) {
  if (!fake()) GTEST_SKIP() << "the fake device counts its calls";
  Context ctx = make_context();
  Context other = make_context();
  CudaGraph graph =
      capture(ctx, [](Context& c, std::span<const Tensor> in) { return std::vector{affine(c, in[0], 2, 0)}; },
              {filled(ctx, 1)});
  graph.replay(ctx.stream());
  const std::uint64_t waits = fake()->call_count("cudaStreamWaitEvent");
  expect_error<ShapeError>([&] { graph.replay(other.stream(), std::array{filled(ctx, 1, 5)}); }, "input 0");
  EXPECT_EQ(fake()->call_count("cudaStreamWaitEvent"), waits);
  graph.replay(other.stream());
  EXPECT_GT(fake()->call_count("cudaStreamWaitEvent"), waits) << "one that runs waits for the last replay";
}

TEST_F(GraphOrder, MemoryOfAReplayOnAStreamThatIsGoneIsReusedAfterIt) {
  Context ctx = make_context();
  int wrong = 0;
  for (int i = 0; i < 20; ++i) {
    Tensor result;
    {
      Context side = make_context();
      CudaGraph graph = capture(
          ctx, [](Context& c, Inputs in) { return std::vector{affine(c, affine(c, in[0], 2, 0), 2, 0)}; },
          {filled(ctx, 1, 100'000)});
      ctx.synchronize();
      delay(side);
      graph.replay(side.stream());
      result = affine(side, graph.outputs()[0], 1, 0);
      graph.reset();
      for (int k = 0; k < 4; ++k) affine(ctx, filled(ctx, -1, 100'000), 1, 0);
      side.synchronize();
      wrong += value_of(side, result) != 4;
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST_F(GraphOrder, MemoryThatAGraphReadsIsReusedAfterItsLastReplay) {
  constexpr std::int64_t kCount = 100'000;
  Context one = make_context();
  Context two = make_context();
  Context owner = make_context();  // everything is allocated, and reused, in its order
  const CaptureOptions shared{.pool = make_graph_pool(one)};  // whose end does not wait for the graph
  Tensor busy = filled(one, 0, kCount);
  int wrong = 0;
  for (int i = 0; i < 12; ++i) {
    Tensor x = filled(owner, 1, kCount);
    Tensor weight = filled(owner, 5, kCount);
    CudaGraph graph = capture(
        one, [&](Context& c, Inputs in) { return std::vector{sum2(c, in[0], weight)}; }, {busy}, shared);
    Context& first = i % 2 == 0 ? one : two;
    Context& last = i % 2 == 0 ? two : one;
    for (Context* ctx : {&one, &two}) graph.replay(ctx->stream());
    graph.replay(first.stream(), std::array{x});
    delay(last);
    for (int k = 0; k < 50; ++k) affine_into(last, busy, busy, 1, 1);
    graph.replay(last.stream());
    const Tensor result = graph.outputs()[0];
    const Tensor kept = i % 4 < 2 ? x : weight;
    x = weight = Tensor();
    graph.reset();
    pool()->set_limit_bytes(pool()->reserved_bytes());
    std::vector<Tensor> reused;
    try {
      for (;;) {
        reused.push_back(empty(owner, {kCount}));
        affine_into(owner, reused.back(), reused.back(), 0, -1);
      }
    } catch (const OutOfMemory&) {
    }
    pool()->set_limit_bytes(std::size_t{1} << 30);
    EXPECT_GE(reused.size(), 1u);
    owner.synchronize();
    wrong += value_of(last, result) != 6;
  }
  EXPECT_EQ(wrong, 0);
}

TEST_F(GraphOrder, AReplayThatWouldOverwriteALiveTensorOfAnotherGraphIsRefused) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1);
  const GraphPool shared = make_graph_pool(ctx);
  CudaGraph first;
  CudaGraph second;
  first.capture_begin(ctx, shared);
  for (int i = 0; i < 3; ++i) affine(ctx, affine(ctx, x, 2, 0), 2, 0);
  first.capture_end();
  first.replay(ctx.stream());  // nothing of it is held
  Tensor kept = record_affine(second, ctx, x, 5, 0, shared);
  second.replay(ctx.stream());
  expect_error<CaptureError>([&] { first.replay(ctx.stream()); }, "replay: ");
  EXPECT_EQ(first.replays(), 1u);
  EXPECT_EQ(value_of(ctx, kept), 5);
  second.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, kept), 5);
  second.reset();
  expect_error<CaptureError>([&] { first.replay(ctx.stream()); }, "replay: ");
  EXPECT_EQ(value_of(ctx, kept), 5) << "valid after its graph is gone";
  kept = Tensor();
  first.replay(ctx.stream());
  EXPECT_EQ(first.replays(), 2u);
  expect_usable(ctx);
}

TEST_F(GraphOrder, ATensorThatIsGoneMakesRoomForTheNextGraph) {
  Context ctx = make_context();
  const GraphPool shared = make_graph_pool(ctx);
  constexpr std::int64_t kCount = std::int64_t{1} << 20;
  const auto forward = [](Context& c, Inputs in) {
    Tensor y = in[0];
    for (int i = 0; i < 4; ++i) y = affine(c, y, 1, 1);
    return std::vector{y.slice(0, 0, 4)};
  };
  std::vector<CudaGraph> graphs;
  std::size_t largest = 0;
  for (const std::int64_t count : {kCount, kCount / 4 * 3, kCount / 2, kCount}) {
    graphs.push_back(
        capture(ctx, forward, {filled(ctx, static_cast<float>(count), count)}, {.pool = shared}));
    if (largest == 0) largest = shared.reserved_bytes();
  }
  EXPECT_EQ(shared.reserved_bytes(), largest) << "the largest, not the sum";
  for (CudaGraph& graph : graphs) {
    graph.replay(ctx.stream());
    EXPECT_EQ(value_of(ctx, graph.outputs()[0]), static_cast<float>(graph.inputs()[0].shape.count()) + 4);
  }
}

TEST_F(GraphOrder, G17_DevicesOtherThanTheCurrentOne) {
  if (cuda_availability().count < 2) GTEST_SKIP() << "one device";
  const auto current = [] {
    int device = -1;
    BURIN_CUDA("test", cudaGetDevice, &device);
    return device;
  };
  BURIN_CUDA("test", cudaSetDevice, 0);
  Context zero = make_context();
  Context one = OnCuda::make_context(nullptr, 1);
  const auto forward = [](Context& c, Inputs in) { return std::vector{affine(c, in[0], 2, 1)}; };
  CudaGraph on_one = capture(one, forward, {filled(one, 3)});
  EXPECT_EQ(current(), 0);
  CudaGraph on_zero = capture(zero, forward, {filled(zero, 4)});
  CudaGraph by_hand;
  const Tensor x = filled(one, 5);
  const Tensor y = record_affine(by_hand, one, x, 3, 0);
  for (int i = 0; i < 3; ++i) {
    on_one.replay(one.stream());
    on_zero.replay(zero.stream());
    by_hand.replay(one.stream());
    EXPECT_EQ(current(), 0);
  }
  EXPECT_EQ(value_of(one, on_one.outputs()[0]), 7);
  EXPECT_EQ(value_of(zero, on_zero.outputs()[0]), 9);
  EXPECT_EQ(value_of(one, y), 15);
  EXPECT_THROW(on_one.replay(zero.stream()), Error);
  EXPECT_THROW(on_zero.capture_begin(one), CaptureError);
  EXPECT_EQ(on_one.replays(), 3u);
  on_one.reset();
  by_hand.reset();
  EXPECT_EQ(current(), 0);
}

// Parts of a caller's own graph.

TEST_F(GraphOrder, TwoGraphsAndACallersKernelInOneGraph) {
  Context ctx = make_context();
  Tensor x = filled(ctx, 1);
  Tensor between = filled(ctx, 0);
  CudaGraph first;
  CudaGraph second;
  const Tensor y = record_affine(first, ctx, x, 2, 1);
  const Tensor z = record_affine(second, ctx, between, 10, 0);
  const auto run_separately = [&] {
    first.replay(ctx.stream());
    affine_into(ctx, between, y, 1, 100);
    second.replay(ctx.stream());
    return value_of(ctx, z);
  };
  EXPECT_EQ(run_separately(), 1030);

  const Stream callers(Device::cuda());
  callers.wait(ctx.stream());
  const cudaGraph_t captured = capture_raw(callers, [&] {
    first.add_to_capture(callers);
    graph_ops_impl::affine(callers, between.data<float>(), y.data<float>(), 4, 1, 100);
    second.add_to_capture(callers);
  });
  for (const float value : {1.0f, 4.0f}) {
    affine_into(ctx, x, x, 0, value);
    callers.wait(ctx.stream());
    launch_once(captured, callers);
    EXPECT_EQ(value_of(ctx, z), 10 * (2 * value + 101));
  }
  BURIN_CUDA("test", cudaGraphDestroy, captured);

  cudaGraph_t assembled = nullptr;
  BURIN_CUDA("test", cudaGraphCreate, &assembled, 0);
  const cudaGraph_t kernel = capture_raw(
      callers, [&] { graph_ops_impl::affine(callers, between.data<float>(), y.data<float>(), 4, 1, 100); });
  cudaGraphNode_t last = nullptr;
  for (const cudaGraph_t part : {static_cast<cudaGraph_t>(first.native_graph()), kernel,
                                 static_cast<cudaGraph_t>(second.native_graph())}) {
    const cudaGraphNode_t before = last;
    BURIN_CUDA("test", cudaGraphAddChildGraphNode, &last, assembled, &before, before ? 1 : 0, part);
  }
  affine_into(ctx, x, x, 0, 7);
  callers.wait(ctx.stream());
  launch_once(assembled, callers);
  EXPECT_EQ(value_of(ctx, z), 10 * (2 * 7 + 101));
  for (const cudaGraph_t made : {assembled, kernel}) BURIN_CUDA("test", cudaGraphDestroy, made);
  affine_into(ctx, x, x, 0, 1);
  EXPECT_EQ(run_separately(), 1030);
}

TEST_F(GraphOrder, AGraphWithInputsInACallersCaptureReadsTheOnesItHas) {
  Context ctx = make_context();
  for (const bool concealed : {false, true}) {
    const auto forward = [&](Context& c, Inputs in) {
      return std::vector{affine(c, concealed ? hidden(c, in[0]) : in[0], 2, 1)};
    };
    CudaGraph graph = capture(ctx, forward, {filled(ctx, 1)});
    graph.replay(ctx.stream(), std::array{filled(ctx, 5)});
    const Stream callers(Device::cuda());
    callers.wait(ctx.stream());
    const cudaGraph_t captured = capture_raw(callers, [&] { graph.add_to_capture(callers); });
    graph.replay(ctx.stream(), std::array{filled(ctx, 7)});  // the caller's graph still reads the other
    for (int i = 0; i < 8; ++i) filled(ctx, -1);
    affine_into(ctx, const_cast<Tensor&>(graph.outputs()[0]), graph.outputs()[0], 0, -1);
    callers.wait(ctx.stream());
    launch_once(captured, callers);
    BURIN_CUDA("test", cudaGraphDestroy, captured);
    EXPECT_EQ(value_of(ctx, graph.outputs()[0]), 11);
    expect_error<CaptureError>([&] { graph.native_graph(); }, "native_graph: the graph has inputs");
    graph.replay(ctx.stream(), std::array{filled(ctx, 6)});
    EXPECT_EQ(value_of(ctx, graph.outputs()[0]), 13);
  }
}

TEST_F(GraphOrder, APassIsRecordedIntoACallersCapture) {
  Context ctx = make_context();
  Tensor x = filled(ctx, 1);
  Tensor before = filled(ctx, 0);
  Tensor after = filled(ctx, 0);
  const auto forward = [](Context& c, Inputs in) {
    return std::vector{sum2(c, affine(c, hidden(c, in[0]), 2, 1), in[0])};
  };
  warm_up(ctx, forward, std::array{before});
  const Stream callers(Device::cuda());
  callers.wait(ctx.stream());
  std::optional<RecordedPass> pass;
  const cudaGraph_t captured = capture_raw(callers, [&] {
    graph_ops_impl::affine(callers, before.data<float>(), x.data<float>(), 4, 10, 0);
    pass = record(ctx, callers, forward, {before});
    graph_ops_impl::affine(callers, after.data<float>(), pass->outputs.at(0).data<float>(), 4, 1, 1000);
  });
  expect_usable(ctx);
  std::size_t nodes = 0;
  std::size_t edges = 0;
  BURIN_CUDA("test", cudaGraphGetNodes, captured, nullptr, &nodes);
  BURIN_CUDA("test", cudaGraphGetEdges, captured, nullptr, nullptr, nullptr, &edges);
  EXPECT_EQ(nodes, 5u);
  EXPECT_EQ(edges, 4u) << "one straight line";
  for (const float value : {1.0f, 4.0f}) {
    affine_into(ctx, x, x, 0, value);
    callers.wait(ctx.stream());
    launch_once(captured, callers);
    EXPECT_EQ(value_of(ctx, after), 3 * 10 * value + 1001);
  }
  BURIN_CUDA("test", cudaGraphDestroy, captured);
}

TEST_F(GraphOrder, RecordingIntoACallersCaptureIsRefusedWhereItCannotBe) {
  Context ctx = make_context();
  Context cpu;
  const Stream callers(Device::cuda());
  const Tensor x = filled(ctx, 1);
  const auto forward = [](Context& c, Inputs in) { return std::vector{affine(c, in[0], 2, 1)}; };
  expect_error<CaptureError>([&] { record(ctx, callers, forward, {x}); }, "not being captured");
  expect_error<CaptureError>([&] { record(cpu, callers, forward, {x}); }, "record: ");
  CudaGraph graph;
  graph.capture_begin(ctx);
  const cudaGraph_t captured = capture_raw(callers, [&] {
    expect_error<CaptureError>([&] { record(ctx, callers, forward, {x}); }, "being captured already");
  });
  const Tensor y = affine(ctx, x, 3, 0);
  graph.capture_end();
  graph.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, y), 3);
  BURIN_CUDA("test", cudaGraphDestroy, captured);

  struct Custom {};
  callers.wait(ctx.stream());
  const cudaGraph_t abandoned = capture_raw(callers, [&] {
    const auto throwing = [](Context& c, Inputs in) -> std::vector<Tensor> {
      affine(c, in[0], 2, 1);
      throw Custom();
    };
    EXPECT_THROW(record(ctx, callers, throwing, {x}), Custom);
  });
  BURIN_CUDA("test", cudaGraphDestroy, abandoned);
  expect_usable(ctx);
}

}  // namespace
}  // namespace burin::test
