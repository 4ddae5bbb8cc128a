// CudaGraph by hand: what is recorded, what is refused and how, what outlives what.

#include <burin/graph/cuda_graph.h>
#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/name_scope.h>
#include <support/graph_fixture.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

namespace burin::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

cudaStream_t native(StreamView stream) { return static_cast<cudaStream_t>(stream.native_handle()); }

class CudaGraphs : public OnGraphs {
 protected:
  /// The call throws CaptureError, and has changed neither the graph nor the stream.
  template <class Call>
  static void expect_refused(Context& ctx, const CudaGraph& graph, const std::string& piece, Call call,
                             std::source_location where = std::source_location::current()) {
    const ::testing::ScopedTrace trace(where.file_name(), static_cast<int>(where.line()), "expect_refused");
    const bool recording = graph.is_recording();
    const bool captured = graph.is_captured();
    const std::uint64_t replays = graph.replays();
    const GraphPool pool = graph.pool();
    const std::uint64_t capture = cuda::capture_id(ctx.stream());
    expect_error<CaptureError>(call, piece, where);
    EXPECT_EQ(graph.is_recording(), recording);
    EXPECT_EQ(graph.is_captured(), captured);
    EXPECT_EQ(graph.replays(), replays);
    EXPECT_EQ(graph.pool(), pool);
    EXPECT_EQ(cuda::capture_id(ctx.stream()), capture);
    if (capture == 0) expect_usable(ctx);
  }
};

TEST_F(CudaGraphs, RecordOnceAndRunEachTime) {
  Context ctx = make_context();
  Tensor x = filled(ctx, 1);
  CudaGraph graph;
  EXPECT_FALSE(graph.is_captured());
  graph.capture_begin(ctx);
  EXPECT_TRUE(graph.is_recording());
  affine_into(ctx, x, x, 2, 1);
  const Tensor y = affine(ctx, x, 10, 0);
  graph.capture_end();
  EXPECT_FALSE(graph.is_recording());
  EXPECT_TRUE(graph.is_captured());
  EXPECT_EQ(value_of(ctx, x), 1) << "a capture runs nothing";
  for (const float expected : {3.0f, 7.0f, 15.0f}) {
    graph.replay(ctx.stream());
    EXPECT_EQ(value_of(ctx, x), expected);
    EXPECT_EQ(value_of(ctx, y), 10 * expected);
  }
  EXPECT_EQ(graph.replays(), 3u);
  EXPECT_THAT(graph.outputs(), IsEmpty());
  EXPECT_THAT(graph.inputs(), IsEmpty());
}

TEST_F(CudaGraphs, RefuseACaptureThatCannotBegin) {
  Context ctx = make_context();
  CudaGraph graph;
  Context cpu;
  expect_refused(ctx, graph, "CPU", [&] { graph.capture_begin(cpu); });
  for (void* handle : {static_cast<void*>(nullptr), static_cast<void*>(cudaStreamLegacy),
                       static_cast<void*>(cudaStreamPerThread)}) {  // G11
    ContextOptions options;
    options.memory = pool();
    options.stream = Stream::wrap(Device::cuda(), handle);
    Context on_default(Device::cuda(), std::move(options));
    expect_refused(ctx, graph, "default stream", [&] { graph.capture_begin(on_default); });
  }
  Context foreign = make_context(make_cuda_resource(0));
  expect_refused(ctx, graph, "CachingPool", [&] { graph.capture_begin(foreign); });
  expect_usable(foreign);
}

TEST_F(CudaGraphs, RefuseWhatIsOutOfTurn) {
  Context ctx = make_context();
  Context other = make_context();
  const Tensor x = filled(ctx, 1);
  CudaGraph graph;
  CudaGraph second;
  expect_refused(ctx, graph, "capture_end: ", [&] { graph.capture_end(); });
  expect_refused(ctx, graph, "replay: ", [&] { graph.replay(ctx.stream()); });
  expect_refused(ctx, graph, "debug_dump: ", [&] { graph.debug_dump("/nowhere"); });
  expect_refused(ctx, graph, "native_graph: ", [&] { graph.native_graph(); });
  expect_refused(ctx, graph, "add_to_capture: ", [&] { graph.add_to_capture(ctx.stream()); });
  expect_refused(ctx, graph, "ops: ", [&] { graph.ops(); });
  expect_refused(ctx, graph, "nodes: ", [&] { graph.nodes(); });
  expect_refused(ctx, graph, "outputs: ", [&] { graph.outputs(); });
  expect_refused(ctx, graph, "inputs: ", [&] { graph.inputs(); });

  graph.capture_begin(ctx);
  const Tensor y = affine(ctx, x, 3, 0);
  expect_refused(ctx, graph, "recording already", [&] { graph.capture_begin(ctx); });
  expect_refused(ctx, graph, "recording already", [&] { graph.capture_begin(other); });
  expect_refused(ctx, second, "being captured already", [&] { second.capture_begin(ctx); });
  expect_refused(ctx, second, "being recorded to by another capture",
                 [&] { second.capture_begin(other, graph.pool()); });
  expect_refused(ctx, graph, "set_pool: ", [&] { graph.set_pool(GraphPool()); });
  expect_refused(ctx, graph, "still recording", [&] { graph.replay(other.stream()); });
  expect_refused(ctx, graph, "still recording", [&] { graph.native_graph(); });
  graph.capture_end();
  graph.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, y), 3) << "none of it disturbed the capture";

  expect_refused(ctx, graph, "reset()", [&] { graph.capture_begin(ctx); });
  expect_refused(ctx, graph, "capture_end: ", [&] { graph.capture_end(); });
  expect_refused(ctx, graph, "not being captured", [&] { graph.add_to_capture(ctx.stream()); });
  expect_error<ShapeError>([&] { graph.replay(ctx.stream(), std::array{x}); }, "0 inputs were captured");
  EXPECT_EQ(graph.replays(), 1u);
}

TEST_F(CudaGraphs, G12_ACallersCaptureIsRefusedAndGoesOn) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1);
  Tensor y = empty(ctx, x.shape());
  CudaGraph graph;
  BURIN_CUDA("test", cudaStreamBeginCapture, native(ctx.stream()), cudaStreamCaptureModeThreadLocal);
  affine_into(ctx, y, x, 5, 0);
  expect_refused(ctx, graph, "being captured already", [&] { graph.capture_begin(ctx); });
  cudaGraph_t captured = nullptr;
  BURIN_CUDA("test", cudaStreamEndCapture, native(ctx.stream()), &captured);
  std::size_t nodes = 0;
  BURIN_CUDA("test", cudaGraphGetNodes, captured, nullptr, &nodes);
  EXPECT_EQ(nodes, 1u);
  BURIN_CUDA("test", cudaGraphDestroy, captured);
  expect_usable(ctx);
}

TEST_F(CudaGraphs, G12_AReplayIntoACapturingStreamIsRefused) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1);
  CudaGraph inner;
  const Tensor y = record_affine(inner, ctx, x, 2, 0);
  CudaGraph outer;
  outer.capture_begin(ctx);
  expect_refused(ctx, inner, "replay: the stream is being captured", [&] { inner.replay(ctx.stream()); });
  const Tensor z = affine(ctx, x, 3, 0);
  outer.capture_end();
  EXPECT_EQ(outer.nodes().size(), 1u);
  inner.replay(ctx.stream());
  outer.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, y), 2);
  EXPECT_EQ(value_of(ctx, z), 3);
}

TEST_F(CudaGraphs, G12_AWaitInACaptureFailsItAndNothingElse) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1);
  const std::size_t before = trimmed_bytes();
  const std::shared_ptr<MemoryResource> memory = ctx.memory();
  const auto waits = {std::function<void()>([&] { ctx.synchronize(); }),
                      std::function<void()>([&] { to_vector<float>(ctx, affine(ctx, x, 2, 0)); }),
                      std::function<void()>([&] { (void)ctx.stream().is_idle(); }),
                      std::function<void()>([&] { filled(ctx, 1); })};
  for (const std::function<void()>& wait : waits) {
    CudaGraph graph;
    graph.capture_begin(ctx);
    affine(ctx, x, 2, 0);
    EXPECT_THROW(wait(), Error);
    try {
      graph.capture_end();
    } catch (const CaptureError&) {
    }
    graph.reset();
    EXPECT_EQ(ctx.memory(), memory);
    expect_usable(ctx);
    EXPECT_EQ(value_of(ctx, x), 1);
  }
  EXPECT_EQ(trimmed_bytes(), before);
}

TEST_F(CudaGraphs, G12_AGraphThatEndsWhileItRecordsDropsTheCapture) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1);
  const std::size_t before = trimmed_bytes();
  {
    CudaGraph graph;
    graph.capture_begin(ctx);
    affine(ctx, x, 2, 0);
  }
  expect_usable(ctx);
  CudaGraph graph;
  graph.capture_begin(ctx);
  affine(ctx, x, 2, 0);
  graph.reset();
  EXPECT_FALSE(graph.is_recording());
  EXPECT_FALSE(graph.is_captured());
  expect_usable(ctx);
  graph.capture_begin(ctx);
  graph = CudaGraph();
  expect_usable(ctx);
  EXPECT_EQ(trimmed_bytes(), before);
  EXPECT_THAT(warnings(), IsEmpty());
}

TEST_F(CudaGraphs, G26_ResultsOutliveTheGraph) {
  Context ctx = make_context();
  constexpr std::int64_t kCount = kMiB;  // 4 MiB, a block of which fills its mapping
  Tensor b;
  {
    CudaGraph graph;
    Tensor x = filled(ctx, 1, kCount);
    graph.capture_begin(ctx);
    b = x;
    for (int i = 0; i < 5; ++i) b = affine(ctx, b, 1, 1);
    graph.capture_end();
    for (int i = 0; i < 2; ++i) {
      graph.replay(ctx.stream());
      EXPECT_EQ(value_of(ctx, b), 6);
      affine_into(ctx, b, b, 0, -1);
      pool()->trim();
    }
    graph.replay(ctx.stream());
    x = Tensor();
    pool()->trim();
    graph.replay(ctx.stream());
    EXPECT_EQ(value_of(ctx, b), 6);
  }
  EXPECT_EQ(trimmed_bytes(), b.bytes()) << "only the result holds memory";
  EXPECT_EQ(value_of(ctx, b), 6);
  b = Tensor();
  EXPECT_EQ(trimmed_bytes(), 0u);
}

TEST_F(CudaGraphs, G26_ResetAndRecapture) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1);
  CudaGraph graph;
  const Tensor first = record_affine(graph, ctx, x, 2, 0);
  const GraphPool pool = graph.pool();
  graph.replay(ctx.stream());
  graph.reset();
  EXPECT_FALSE(graph.is_captured());
  EXPECT_EQ(graph.pool(), pool) << "a pool stays";
  expect_refused(ctx, graph, "replay: ", [&] { graph.replay(ctx.stream()); });
  const Tensor second = record_affine(graph, ctx, x, 3, 0);
  EXPECT_EQ(graph.pool(), pool);
  graph.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, first), 2);
  EXPECT_EQ(value_of(ctx, second), 3);
}

TEST_F(CudaGraphs, G26_AnEmptyGraphIsWarnedOfAndRuns) {
  Context ctx = make_context();
  CudaGraph graph;
  graph.capture_begin(ctx);
  graph.capture_end();
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("empty")));
  EXPECT_THAT(graph.nodes(), IsEmpty());
  for (int i = 0; i < 3; ++i) graph.replay(ctx.stream());
  expect_usable(ctx);
}

TEST_F(CudaGraphs, TakeThePoolThatTheyAreGiven) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1);
  CudaGraph first;
  EXPECT_FALSE(first.pool());
  const GraphPool shared = make_graph_pool(ctx);
  first.set_pool(shared);
  EXPECT_EQ(first.pool(), shared);
  const Tensor y = record_affine(first, ctx, x, 2, 0);
  EXPECT_EQ(first.pool(), shared);
  EXPECT_GT(shared.allocated_bytes(), 0u);
  CudaGraph second;
  const Tensor z = record_affine(second, ctx, y, 5, 0, first.pool());
  EXPECT_EQ(second.pool(), shared);
  first.replay(ctx.stream());
  second.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, z), 10);
  CudaGraph third;
  const Tensor w = record_affine(third, ctx, x, 2, 0);
  EXPECT_TRUE(third.pool());
  EXPECT_NE(third.pool(), shared);
}

TEST_F(CudaGraphs, HoldWhatTheyRead) {
  Context ctx = make_context();
  CudaGraph graph;
  Tensor y;
  {
    const Tensor weight = filled(ctx, 3);
    y = record_affine(graph, ctx, weight.slice(0, 1, 3), 2, 1);
  }
  pool()->trim();
  for (int i = 0; i < 8; ++i) filled(ctx, -1);  // would take the weight's memory
  graph.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, y), 7);
}

TEST_F(CudaGraphs, OutliveTheirContext) {
  CudaGraph graph;
  Tensor y;
  {
    Context ctx = make_context();
    y = record_affine(graph, ctx, filled(ctx, 3), 2, 1);
  }
  Context other = make_context();
  graph.replay(other.stream());
  EXPECT_EQ(value_of(other, y), 7);
}

TEST_F(CudaGraphs, RefuseAPoolOfOtherMemory) {
  Context ctx = make_context();
  const auto other = std::make_shared<CachingPool>(Device::cuda(0));
  CudaGraph graph;
  expect_error<CaptureError>([&] { graph.capture_begin(ctx, other->make_graph_pool()); },
                             "another CachingPool than the context's memory");
  EXPECT_FALSE(graph.is_recording());
}

TEST_F(CudaGraphs, MoveWhileTheyRecordAndAfterwards) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1);
  CudaGraph graph;
  graph.capture_begin(ctx);
  CudaGraph moved = std::move(graph);
  EXPECT_FALSE(graph.is_recording());  // NOLINT: moved from
  const Tensor y = affine(ctx, x, 4, 0);
  moved.capture_end();
  CudaGraph again;
  again = std::move(moved);
  EXPECT_FALSE(moved.is_captured());  // NOLINT: moved from
  again.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, y), 4);
  // What was moved from is an empty graph.
  EXPECT_FALSE(moved.pool());
  moved.reset();
  expect_error<CaptureError>([&] { moved.replay(ctx.stream()); }, "replay: the graph is empty");
  expect_error<CaptureError>([&] { graph.capture_end(); }, "capture_end: the graph is not recording");
  graph.capture_begin(ctx);
  const Tensor z = affine(ctx, x, 5, 0);
  graph.capture_end();
  graph.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, z), 5);
}

TEST_F(CudaGraphs, AreOneStraightLineOfNamedNodes) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1);
  CudaGraph graph;
  graph.capture_begin(ctx);
  const NameScope layer(ctx, "layer");
  Tensor y = zeros(ctx, {4});
  for (int i = 0; i < 3; ++i) {
    const NameScope block(ctx, "block" + std::to_string(i));
    y = sum2(ctx, affine(ctx, x, 2, 0), y);
    y = hidden(ctx, y);
  }
  graph.capture_end();
  const std::vector<GraphNode>& nodes = graph.nodes();
  ASSERT_EQ(nodes.size(), 10u);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const std::string label = "node " + std::to_string(i);
    EXPECT_EQ(nodes[i].after, i == 0 ? std::vector<std::size_t>() : std::vector<std::size_t>{i - 1}) << label;
    const GraphNode::Kind kind = i == 0       ? GraphNode::Kind::fill
                                 : i % 3 == 0 ? GraphNode::Kind::copy
                                              : GraphNode::Kind::kernel;
    EXPECT_EQ(nodes[i].kind, kind) << label;
    EXPECT_EQ(nodes[i].is_own, kind == GraphNode::Kind::kernel) << label;
    if (i == 0) continue;
    ASSERT_GE(nodes[i].op, 0) << label;
    const GraphOp& op = graph.ops().at(static_cast<std::size_t>(nodes[i].op));
    EXPECT_EQ(op.name, i % 3 == 1 ? "affine" : i % 3 == 2 ? "sum2" : "hidden") << label;
    EXPECT_EQ(op.path, "layer.block" + std::to_string((i - 1) / 3)) << label;
    EXPECT_EQ(op.inputs.size(), i % 3 == 2 ? 2u : 1u) << label;
    EXPECT_EQ(op.output, x.spec()) << label;
    EXPECT_EQ(op.bytes, x.bytes() * (op.inputs.size() + 1)) << label;
  }
  graph.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, y), 6);
}

TEST_F(CudaGraphs, DumpOperatorsShapesAndPaths) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1, 12).reshape({3, 4});
  CudaGraph graph;
  graph.enable_debug_mode();
  graph.capture_begin(ctx);
  {
    const NameScope scope(ctx, "encoder.layer7");
    hidden(ctx, affine(ctx, x, 2, 0));
  }
  graph.capture_end();
  const std::string path = ::testing::TempDir() + "burin_graph.dot";
  graph.debug_dump(path);
  std::ifstream file(path);
  const std::string dot{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove(path);
  for (const char* piece : {"digraph", "affine", "hidden", "encoder.layer7", "[3, 4]", "->"})
    EXPECT_THAT(dot, HasSubstr(piece));
  EXPECT_THROW(graph.debug_dump("/nowhere/burin_graph.dot"), FileError);
  graph.replay(ctx.stream());
  ctx.synchronize();
}

TEST_F(CudaGraphs, AreDestroyedWhileThisThreadOrAnotherCaptures) {
  Context ctx = make_context();
  Context other = make_context();
  const Tensor x = filled(ctx, 1);
  const auto make_graph = [&] {
    auto graph = std::make_unique<CudaGraph>();
    record_affine(*graph, ctx, x, 2, 0);
    graph->replay(ctx.stream());
    return graph;
  };
  auto here = make_graph();
  auto elsewhere = make_graph();
  CudaGraph recording;
  recording.capture_begin(other);
  here.reset();
  std::thread([&] { elsewhere.reset(); }).join();
  const Tensor y = affine(other, x, 7, 0);
  recording.capture_end();
  recording.replay(other.stream());
  EXPECT_EQ(value_of(other, y), 7);
  expect_usable(ctx);
}

TEST_F(CudaGraphs, GiveTheirMemoryBackAfterACaptureOfTheStreamThatTheyRanOn) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1, kMiB);
  const std::size_t before = trimmed_bytes();
  for (const bool ended : {false, true}) {
    std::optional<Context> side(make_context());
    side->stream().wait(ctx.stream());
    auto graph = std::make_unique<CudaGraph>();
    record_affine(*graph, ctx, x, 2, 0);
    ctx.synchronize();
    delay(*side);
    graph->replay(side->stream());
    CudaGraph recording;
    recording.capture_begin(*side);
    affine(*side, x, 7, 0);
    graph.reset();  // while it runs on the stream that is being captured
    if (!ended) {
      recording.capture_end();
      recording.replay(side->stream());
    }
    recording = CudaGraph();
    if (ended) side.reset();
    EXPECT_EQ(trimmed_bytes(), before);
  }
}

TEST_F(CudaGraphs, RefuseAllocationsAndHostCallsOfOtherLibraries) {
  if (fake()) GTEST_SKIP() << "the fake device has neither";
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1);
  const auto host_call = [&] {
    cudaLaunchHostFunc(
        native(ctx.stream()), [](void*) {}, nullptr);
  };
  const auto allocation = [&] {
    void* data = nullptr;
    cudaMallocAsync(&data, 64, native(ctx.stream()));
    cudaFreeAsync(data, native(ctx.stream()));
  };
  for (const std::function<void()>& call :
       {std::function<void()>(host_call), std::function<void()>(allocation)}) {
    CudaGraph graph;
    graph.capture_begin(ctx);
    affine(ctx, x, 2, 0);
    call();
    expect_error<CaptureError>([&] { graph.capture_end(); }, "some other library recorded");
    EXPECT_FALSE(graph.is_captured());
    EXPECT_FALSE(graph.is_recording());
    expect_usable(ctx);
    const Tensor y = record_affine(graph, ctx, x, 2, 0);
    graph.replay(ctx.stream());
    EXPECT_EQ(value_of(ctx, y), 2);
  }
}

}  // namespace
}  // namespace burin::test
