// What the fake device shows of graphs and a GPU does not: every order that a graph allows, its use of memory
// that is gone, and what is left when calls fail.

#include <support/fake_cuda.h>
#include <support/test_support.h>

#include <algorithm>
#include <set>

#include <gmock/gmock.h>

namespace burin::test {
namespace {

using cuda::api;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kBytes = 64;
constexpr std::uint64_t kSeeds = 64;

cudaStream_t make_stream() {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(api().cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
  return stream;
}
cudaEvent_t make_event() {
  cudaEvent_t event = nullptr;
  EXPECT_EQ(api().cudaEventCreateWithFlags(&event, cudaEventDefault), cudaSuccess);
  return event;
}
void* make_device() {
  void* data = nullptr;
  EXPECT_EQ(api().cudaMalloc(&data, kBytes), cudaSuccess);
  return data;
}

template <class Body>
cudaGraph_t capture(cudaStream_t stream, Body body) {
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(api().cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  body();
  EXPECT_EQ(api().cudaStreamEndCapture(stream, &graph), cudaSuccess);
  return graph;
}
cudaGraphExec_t instantiate(cudaGraph_t graph) {
  cudaGraphExec_t exec = nullptr;
  EXPECT_EQ(api().cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  return exec;
}

/// Notes the order in which marks run.
struct Marks {
  FakeCuda& fake;
  std::string order;
  void queue(cudaStream_t stream, char mark) {
    EXPECT_EQ(fake.launch(stream, [this, mark] { order += mark; }), cudaSuccess);
  }
};

/// Runs on `stream` and beside it, and joins them: a, then b and c in any order, then d.
cudaGraph_t capture_diamond(Marks& marks, cudaStream_t stream, cudaStream_t other) {
  const cudaEvent_t event = make_event();
  const cudaGraph_t graph = capture(stream, [&] {
    marks.queue(stream, 'a');
    api().cudaEventRecord(event, stream);
    api().cudaStreamWaitEvent(other, event, 0);
    marks.queue(stream, 'b');
    marks.queue(other, 'c');
    api().cudaEventRecord(event, other);
    api().cudaStreamWaitEvent(stream, event, 0);
    marks.queue(stream, 'd');
  });
  api().cudaEventDestroy(event);
  return graph;
}

TEST(FakeCudaGraphOrder, NodesRunInEveryOrderThatTheirDependenciesAllow) {
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeCuda fake({.seed = seed});
    Marks marks{fake, {}};
    const cudaStream_t stream = make_stream();
    const cudaGraphExec_t exec = instantiate(capture_diamond(marks, stream, make_stream()));
    EXPECT_EQ(api().cudaGraphLaunch(exec, stream), cudaSuccess);
    EXPECT_EQ(fake.pending(), 1U);
    EXPECT_EQ(marks.order, "");
    EXPECT_EQ(api().cudaStreamSynchronize(stream), cudaSuccess);
    orders.insert(marks.order);
  }
  EXPECT_EQ(orders, (std::set<std::string>{"abcd", "acbd"}));
}

/// Behind what the stream's capture has, which goes on behind it.
void add_child(cudaStream_t stream, cudaGraph_t child) {
  cudaStreamCaptureStatus status{};
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* tips = nullptr;
  std::size_t count = 0;
  EXPECT_EQ(api().cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &tips, nullptr, &count),
            cudaSuccess);
  cudaGraphNode_t node = nullptr;
  EXPECT_EQ(api().cudaGraphAddChildGraphNode(&node, graph, tips, count, child), cudaSuccess);
  EXPECT_EQ(
      api().cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1, cudaStreamSetCaptureDependencies),
      cudaSuccess);
}

TEST(FakeCudaGraphOrder, ChildGraphsAreOrderedAsTheirNode) {
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeCuda fake({.seed = seed});
    Marks marks{fake, {}};
    const cudaStream_t stream = make_stream();
    const cudaGraph_t inner = capture_diamond(marks, stream, make_stream());
    const cudaGraphExec_t exec = instantiate(capture(stream, [&] {
      marks.queue(stream, '<');
      add_child(stream, inner);
      marks.queue(stream, '>');
    }));
    EXPECT_EQ(api().cudaGraphLaunch(exec, stream), cudaSuccess);
    EXPECT_EQ(api().cudaStreamSynchronize(stream), cudaSuccess);
    orders.insert(marks.order);
  }
  EXPECT_EQ(orders, (std::set<std::string>{"<abcd>", "<acbd>"}));
}

TEST(FakeCudaGraphOrder, OtherStreamsRunBetweenTheNodesAndTheOwnStreamDoesNot) {
  std::set<std::size_t> places;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeCuda fake({.seed = seed});
    Marks marks{fake, {}};
    const cudaStream_t stream = make_stream();
    const cudaStream_t other = make_stream();
    const cudaGraphExec_t exec = instantiate(capture_diamond(marks, stream, other));
    marks.queue(stream, '<');
    EXPECT_EQ(api().cudaGraphLaunch(exec, stream), cudaSuccess);
    marks.queue(stream, '>');
    marks.queue(other, '!');
    EXPECT_EQ(api().cudaDeviceSynchronize(), cudaSuccess);
    ASSERT_EQ(marks.order.size(), 7U);
    places.insert(marks.order.find('!'));
    std::erase(marks.order, '!');
    EXPECT_EQ(marks.order.front(), '<');
    EXPECT_EQ(marks.order.back(), '>');
  }
  EXPECT_GT(places.size(), 4U);
}

TEST(FakeCudaGraphOrder, LaunchesOfOneWaitForEachOtherAndLaunchesOfTwoDoNot) {
  bool overlapped = false;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    for (const bool same : {true, false}) {
      FakeCuda fake({.seed = seed});
      Marks marks{fake, {}};
      const cudaStream_t stream = make_stream();
      const cudaStream_t other = make_stream();
      const cudaGraph_t graph = capture_diamond(marks, stream, other);
      const cudaGraphExec_t first = instantiate(graph);
      const cudaGraphExec_t second = same ? first : instantiate(graph);
      EXPECT_EQ(api().cudaGraphLaunch(first, stream), cudaSuccess);
      EXPECT_EQ(api().cudaGraphLaunch(second, other), cudaSuccess);
      EXPECT_EQ(api().cudaStreamSynchronize(other), cudaSuccess);
      EXPECT_EQ(api().cudaStreamSynchronize(stream), cudaSuccess);
      const bool apart = marks.order.find('d') == 3;
      EXPECT_TRUE(apart || !same) << marks.order;
      overlapped |= !apart;
    }
  }
  EXPECT_TRUE(overlapped);
}

TEST(FakeCudaGraphOrder, AnExternalEventComesBeforeTheNodesAfterIt) {
  std::set<int> runs_seen;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeCuda fake({.seed = seed});
    const cudaStream_t stream = make_stream();
    const cudaEvent_t event = make_event();
    int runs = 0;
    const cudaGraphExec_t exec = instantiate(capture(stream, [&] {
      fake.launch(stream, [&] { ++runs; });
      EXPECT_EQ(api().cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal), cudaSuccess);
      fake.launch(stream, [&] { ++runs; });
    }));
    EXPECT_EQ(api().cudaGraphLaunch(exec, stream), cudaSuccess);
    EXPECT_EQ(api().cudaGraphExecDestroy(exec), cudaSuccess);
    EXPECT_EQ(api().cudaEventSynchronize(event), cudaSuccess);
    runs_seen.insert(runs);
    EXPECT_EQ(api().cudaEventDestroy(event), cudaSuccess);
    EXPECT_EQ(api().cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(runs, 2);
    EXPECT_THAT(fake.violations(), IsEmpty());
  }
  EXPECT_THAT(runs_seen, Contains(1));
  EXPECT_THAT(runs_seen, ::testing::Not(Contains(0)));
}

class FakeCudaGraphFaults : public ::testing::Test {
 protected:
  cudaGraph_t capture_fill(void* data) {
    return capture(stream_, [&] { api().cudaMemsetAsync(data, 1, kBytes, stream_); });
  }
  FakeCuda fake_;
  cudaStream_t stream_ = make_stream();
};

TEST_F(FakeCudaGraphFaults, MemoryOfNodesIsCheckedWhenTheyRun) {
  void* data = make_device();
  const cudaGraphExec_t exec = instantiate(capture_fill(data));
  EXPECT_EQ(api().cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_EQ(api().cudaFree(data), cudaSuccess);  // waits for the launch
  EXPECT_EQ(api().cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_THAT(fake_.violations(), IsEmpty());
  EXPECT_EQ(api().cudaStreamSynchronize(stream_), cudaErrorIllegalAddress);
  EXPECT_THAT(fake_.violations(), Contains(HasSubstr("when it ran")));
}

TEST_F(FakeCudaGraphFaults, NodesDoNotGoToMemoryThatWasGivenOutAgain) {
  void* data = make_device();
  const cudaGraphExec_t exec = instantiate(capture_fill(data));
  EXPECT_EQ(api().cudaFree(data), cudaSuccess);
  ASSERT_EQ(make_device(), data);
  EXPECT_EQ(api().cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_EQ(api().cudaStreamSynchronize(stream_), cudaErrorIllegalAddress);
  EXPECT_THAT(fake_.violations(), Contains(HasSubstr("given out again")));
}

TEST_F(FakeCudaGraphFaults, KernelsOfNodesDoNotEither) {
  void* data = make_device();
  const cudaGraphExec_t exec = instantiate(
      capture(stream_, [&] { fake_.launch(stream_, [this, data] { fake_.touch(data, kBytes); }); }));
  EXPECT_EQ(api().cudaFree(data), cudaSuccess);
  ASSERT_EQ(make_device(), data);
  EXPECT_EQ(api().cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_EQ(api().cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_THAT(fake_.violations(), Contains(HasSubstr("given out again")));
}

TEST_F(FakeCudaGraphFaults, GraphsAreCountedAndDestroyedHandlesShow) {
  const cudaGraph_t graph = capture_fill(make_device());
  const cudaGraphExec_t exec = instantiate(graph);
  EXPECT_EQ(fake_.live().graphs, 2U);
  EXPECT_EQ(api().cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(api().cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(fake_.live().graphs, 0U);
  EXPECT_THAT(fake_.violations(), IsEmpty());
  cudaGraphExec_t none = nullptr;
  EXPECT_EQ(api().cudaGraphLaunch(exec, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(api().cudaGraphExecDestroy(exec), cudaErrorInvalidValue);
  EXPECT_EQ(api().cudaGraphInstantiate(&none, graph, 0), cudaErrorInvalidValue);
  EXPECT_EQ(fake_.violations().size(), 3U);
}

TEST_F(FakeCudaGraphFaults, AnEventThatAGraphRecordsMustExist) {
  const cudaEvent_t event = make_event();
  const cudaGraphExec_t exec = instantiate(
      capture(stream_, [&] { api().cudaEventRecordWithFlags(event, stream_, cudaEventRecordExternal); }));
  EXPECT_EQ(api().cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(api().cudaGraphLaunch(exec, stream_), cudaErrorInvalidResourceHandle);
  EXPECT_THAT(fake_.violations(), Contains(HasSubstr("event that the graph records was destroyed")));
}

TEST_F(FakeCudaGraphFaults, EachCallFailsOnRequestAndLeavesNothing) {
  const cudaGraph_t graph = capture_fill(make_device());
  const cudaEvent_t event = make_event();
  const cudaGraphExec_t exec = instantiate(graph);
  cudaGraphNode_t node = nullptr;
  std::size_t count = 1;
  EXPECT_EQ(api().cudaGraphGetNodes(graph, &node, &count), cudaSuccess);
  cudaGraph_t made = nullptr;
  cudaGraphExec_t made_exec = nullptr;
  cudaGraphNode_t made_node = nullptr;
  cudaGraphNodeType type{};
  cudaKernelNodeParams kernel = {};
  const std::pair<const char*, std::function<cudaError_t()>> calls[] = {
      {"cudaGraphCreate", [&] { return api().cudaGraphCreate(&made, 0); }},
      {"cudaGraphAddChildGraphNode",
       [&] { return api().cudaGraphAddChildGraphNode(&made_node, graph, nullptr, 0, graph); }},
      {"cudaGraphGetNodes", [&] { return api().cudaGraphGetNodes(graph, nullptr, &count); }},
      {"cudaGraphGetEdges",
       [&] { return api().cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count); }},
      {"cudaGraphNodeGetType", [&] { return api().cudaGraphNodeGetType(node, &type); }},
      {"cudaGraphKernelNodeGetParams", [&] { return api().cudaGraphKernelNodeGetParams(node, &kernel); }},
      {"cudaGraphInstantiate", [&] { return api().cudaGraphInstantiate(&made_exec, graph, 0); }},
      {"cudaGraphExecKernelNodeSetParams",
       [&] { return api().cudaGraphExecKernelNodeSetParams(exec, node, &kernel); }},
      {"cudaGraphUpload", [&] { return api().cudaGraphUpload(exec, stream_); }},
      {"cudaGraphLaunch", [&] { return api().cudaGraphLaunch(exec, stream_); }},
      {"cudaEventRecordWithFlags", [&] { return api().cudaEventRecordWithFlags(event, stream_, 0); }},
      {"cudaStreamUpdateCaptureDependencies",
       [&] { return api().cudaStreamUpdateCaptureDependencies(stream_, nullptr, nullptr, 0, 0); }},
      {"cudaGraphExecDestroy", [&] { return api().cudaGraphExecDestroy(exec); }},
      {"cudaGraphDestroy", [&] { return api().cudaGraphDestroy(graph); }},
  };
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    EXPECT_EQ(fake_.live().graphs, name == std::string("cudaGraphDestroy") ? 1U : 2U);
    fake_.fail_call(1, cudaErrorUnknown, false, name);
    EXPECT_EQ(call(), cudaErrorUnknown);
    EXPECT_TRUE(fake_.has_failed());
    EXPECT_EQ(fake_.pending(), 0U);
  }
  EXPECT_EQ(fake_.live().graphs, 0U);  // they are released all the same
  EXPECT_THAT(fake_.violations(), IsEmpty());
}

}  // namespace
}  // namespace burin::test
