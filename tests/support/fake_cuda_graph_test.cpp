// Graphs: the same tests on the fake device and, where there is one, on a real GPU.

#include <support/fake_cuda.h>
#include <support/test_support.h>

#include <array>
#include <iterator>
#include <optional>

#include <gmock/gmock.h>

namespace burin::test {

const void* add_kernel_address();  // fake_cuda_graph_kernel.cu: *out += value

namespace {

using cuda::api;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t kBytes = 64;

cudaError_t add(int* out, int value, cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1);
  config.stream = stream;
  void* arguments[] = {&out, &value};
  return api().cudaLaunchKernelExC(&config, add_kernel_address(), arguments);
}

void register_kernel(FakeCuda& fake) {
  fake.set_kernel(add_kernel_address(), {sizeof(int*), sizeof(int)},
                  [&fake](const cudaLaunchConfig_t&, void** arguments) {
                    int* out = *static_cast<int**>(arguments[0]);
                    if (fake.touch(out, sizeof(int))) *out += *static_cast<int*>(arguments[1]);
                  });
}

/// The graph of what `body` queues on the stream.
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
cudaGraphExec_t instantiate_only(cudaGraph_t graph) {
  const cudaGraphExec_t exec = instantiate(graph);
  EXPECT_EQ(api().cudaGraphDestroy(graph), cudaSuccess);
  return exec;
}

std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph) {
  std::size_t count = 0;
  EXPECT_EQ(api().cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
  std::vector<cudaGraphNode_t> nodes(count);
  EXPECT_EQ(api().cudaGraphGetNodes(graph, nodes.data(), &count), cudaSuccess);
  EXPECT_EQ(count, nodes.size());
  return nodes;
}
std::size_t edge_count(cudaGraph_t graph) {
  std::size_t count = 0;
  EXPECT_EQ(api().cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count), cudaSuccess);
  return count;
}
cudaGraphNodeType type_of(cudaGraphNode_t node) {
  cudaGraphNodeType type{};
  EXPECT_EQ(api().cudaGraphNodeGetType(node, &type), cudaSuccess);
  return type;
}

struct Material {
  Material() {
    for (cudaStream_t* out : {&stream, &other})
      EXPECT_EQ(api().cudaStreamCreateWithPriority(out, cudaStreamNonBlocking, 0), cudaSuccess);
    for (cudaEvent_t* out : {&event, &later})
      EXPECT_EQ(api().cudaEventCreateWithFlags(out, cudaEventDefault), cudaSuccess);
    void* memory = nullptr;
    EXPECT_EQ(api().cudaMalloc(&memory, kBytes), cudaSuccess);
    data = static_cast<int*>(memory);
    EXPECT_EQ(api().cudaHostAlloc(&memory, kBytes, cudaHostAllocPortable), cudaSuccess);
    pinned = static_cast<int*>(memory);
    EXPECT_EQ(api().cudaMemsetAsync(data, 0, kBytes, stream), cudaSuccess);
    EXPECT_EQ(api().cudaStreamSynchronize(stream), cudaSuccess);
  }
  ~Material() {
    EXPECT_EQ(api().cudaDeviceSynchronize(), cudaSuccess);
    for (cudaStream_t made : {stream, other}) api().cudaStreamDestroy(made);
    for (cudaEvent_t made : {event, later}) api().cudaEventDestroy(made);
    api().cudaFree(data);
    api().cudaFreeHost(pinned);
    api().cudaGetLastError();
  }
  Material(const Material&) = delete;
  Material& operator=(const Material&) = delete;

  int value() {
    EXPECT_EQ(api().cudaMemcpyAsync(pinned, data, sizeof(int), cudaMemcpyDefault, stream), cudaSuccess);
    EXPECT_EQ(api().cudaStreamSynchronize(stream), cudaSuccess);
    return *pinned;
  }
  cudaGraph_t capture_add(int value_added) {
    return capture(stream, [&] { EXPECT_EQ(add(data, value_added, stream), cudaSuccess); });
  }

  cudaStream_t stream = nullptr;
  cudaStream_t other = nullptr;
  cudaEvent_t event = nullptr;
  cudaEvent_t later = nullptr;
  int* data = nullptr;  // zeros
  int* pinned = nullptr;
};

class Graphs : public ::testing::TestWithParam<bool> {  // whether on the fake device
 protected:
  void SetUp() override {
    if (GetParam()) {
      fake_.emplace();
      register_kernel(*fake_);
    } else if (!cuda_availability().reason.empty()) {
      GTEST_SKIP() << cuda_availability().reason;
    }
  }
  void TearDown() override {
    if (!fake_) return;
    EXPECT_THAT(fake_->violations(), IsEmpty());
    EXPECT_EQ(fake_->live(), FakeCuda::Live{});
  }
  std::optional<FakeCuda> fake_;
};
INSTANTIATE_TEST_SUITE_P(Devices, Graphs, ::testing::Bool(),
                         [](const auto& at) { return at.param ? "fake" : "real"; });

TEST_P(Graphs, RunInStreamOrderAfterTheirSourceIsGone) {
  Material used;
  const cudaGraphExec_t exec = instantiate_only(capture(used.stream, [&] {
    add(used.data, 1, used.stream);
    add(used.data, 2, used.stream);
  }));
  EXPECT_EQ(used.value(), 0);  // a capture runs nothing
  add(used.data, 100, used.stream);
  EXPECT_EQ(api().cudaGraphUpload(exec, used.stream), cudaSuccess);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(api().cudaGraphLaunch(exec, used.stream), cudaSuccess);
  EXPECT_EQ(used.value(), 109);
  EXPECT_EQ(api().cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_P(Graphs, LaunchesOfOneDoNotOverlapOnDifferentStreams) {
  Material used;
  const cudaGraphExec_t exec = instantiate_only(capture(used.stream, [&] {
    for (int i = 0; i < 10; ++i) add(used.data, 1, used.stream);
  }));
  for (int i = 0; i < 50; ++i)
    for (cudaStream_t stream : {used.stream, used.other})
      EXPECT_EQ(api().cudaGraphLaunch(exec, stream), cudaSuccess);
  EXPECT_EQ(api().cudaStreamSynchronize(used.other), cudaSuccess);
  EXPECT_EQ(used.value(), 1000);
  EXPECT_EQ(api().cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_P(Graphs, FinishTheirLaunchWhenDestroyed) {
  Material used;
  const cudaGraphExec_t exec = instantiate_only(used.capture_add(5));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(api().cudaGraphLaunch(exec, used.stream), cudaSuccess);
  EXPECT_EQ(api().cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(used.value(), 500);
}

TEST_P(Graphs, MayBeEmpty) {
  Material used;
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(api().cudaGraphCreate(&graph, 0), cudaSuccess);
  EXPECT_THAT(nodes_of(graph), IsEmpty());
  EXPECT_EQ(edge_count(graph), 0U);
  const cudaGraphExec_t exec = instantiate_only(graph);
  EXPECT_EQ(api().cudaGraphUpload(exec, used.stream), cudaSuccess);
  EXPECT_EQ(api().cudaGraphLaunch(exec, used.stream), cudaSuccess);
  EXPECT_EQ(api().cudaStreamSynchronize(used.stream), cudaSuccess);
  EXPECT_EQ(api().cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_P(Graphs, CannotBeLaunchedIntoACapture) {
  Material used;
  const cudaGraphExec_t exec = instantiate_only(used.capture_add(1));
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(api().cudaStreamBeginCapture(used.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(api().cudaGraphLaunch(exec, used.stream), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(api().cudaStreamEndCapture(used.stream, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(api().cudaGraphLaunch(exec, used.stream), cudaSuccess);
  EXPECT_EQ(used.value(), 1);
  EXPECT_EQ(api().cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_P(Graphs, TakeUpdatesOfTheirNodesAlongAsChildren) {
  Material used;
  const cudaGraph_t source = used.capture_add(1);
  const cudaGraphNode_t node = nodes_of(source)[0];
  cudaKernelNodeParams params = {};
  EXPECT_EQ(api().cudaGraphKernelNodeGetParams(node, &params), cudaSuccess);
  int value = 10;
  void* arguments[] = {params.kernelParams[0], &value};
  params.kernelParams = arguments;
  EXPECT_EQ(api().cudaGraphKernelNodeSetParams(node, &params), cudaSuccess);
  cudaGraph_t parent = nullptr;
  EXPECT_EQ(api().cudaGraphCreate(&parent, 0), cudaSuccess);
  cudaGraphNode_t child = nullptr;
  EXPECT_EQ(api().cudaGraphAddChildGraphNode(&child, parent, nullptr, 0, source), cudaSuccess);
  const cudaGraphExec_t exec = instantiate_only(parent);
  EXPECT_EQ(api().cudaGraphLaunch(exec, used.stream), cudaSuccess);
  EXPECT_EQ(used.value(), 10);
  EXPECT_EQ(api().cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(api().cudaGraphDestroy(source), cudaSuccess);
}

TEST_P(Graphs, UpdatesAreOfLaterLaunchesAndCopyArguments) {
  Material used;
  const cudaGraph_t graph = used.capture_add(1);
  const cudaGraphExec_t exec = instantiate(graph);
  const cudaGraphNode_t node = nodes_of(graph).at(0);
  EXPECT_EQ(api().cudaGraphLaunch(exec, used.stream), cudaSuccess);
  cudaKernelNodeParams params = {};
  EXPECT_EQ(api().cudaGraphKernelNodeGetParams(node, &params), cudaSuccess);
  EXPECT_EQ(*static_cast<int**>(params.kernelParams[0]), used.data);
  int value = 10;
  void* arguments[] = {params.kernelParams[0], &value};
  params.kernelParams = arguments;
  EXPECT_EQ(api().cudaGraphExecKernelNodeSetParams(exec, node, &params), cudaSuccess);
  value = 1000;
  EXPECT_EQ(api().cudaGraphLaunch(exec, used.stream), cudaSuccess);
  EXPECT_EQ(used.value(), 11);
  EXPECT_EQ(api().cudaGraphKernelNodeGetParams(node, &params), cudaSuccess);
  EXPECT_EQ(*static_cast<int*>(params.kernelParams[1]), 1);  // the source is as it was
  EXPECT_EQ(api().cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(api().cudaGraphDestroy(graph), cudaSuccess);
}

TEST_P(Graphs, TellWhatTheirNodesDo) {
  Material used;
  const cudaGraph_t graph = capture(used.stream, [&] {
    api().cudaMemsetAsync(used.data, 7, kBytes, used.stream);
    api().cudaMemcpyAsync(used.pinned, used.data, kBytes, cudaMemcpyDefault, used.stream);
    add(used.data, 1, used.stream);
  });
  const std::vector<cudaGraphNode_t> nodes = nodes_of(graph);
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_EQ(type_of(nodes[0]), cudaGraphNodeTypeMemset);
  EXPECT_EQ(type_of(nodes[1]), cudaGraphNodeTypeMemcpy);
  EXPECT_EQ(type_of(nodes[2]), cudaGraphNodeTypeKernel);
  cudaKernelNodeParams launched = {};
  EXPECT_EQ(api().cudaGraphKernelNodeGetParams(nodes[2], &launched), cudaSuccess);
  EXPECT_EQ(launched.func, add_kernel_address());
  EXPECT_EQ(launched.gridDim.x, 1U);
  EXPECT_EQ(api().cudaGraphKernelNodeGetParams(nodes[0], &launched), cudaErrorInvalidValue);

  std::array<cudaGraphNode_t, 3> from{};
  std::array<cudaGraphNode_t, 3> to{};
  std::array<cudaGraphEdgeData, 3> data{};
  std::size_t count = 3;
  EXPECT_EQ(api().cudaGraphGetEdges(graph, from.data(), to.data(), data.data(), &count), cudaSuccess);
  EXPECT_EQ(count, 2U);
  for (std::size_t i = 0; i < count; ++i)
    EXPECT_EQ(to[i], from[i] == nodes[0] ? nodes[1] : nodes[2]) << "edge " << i;
  EXPECT_EQ(from[2], nullptr);
  EXPECT_EQ(api().cudaGraphDestroy(graph), cudaSuccess);
}

TEST_P(Graphs, ChildrenAreCopies) {
  Material used;
  const cudaGraph_t graph = used.capture_add(1);
  const cudaGraph_t parent = used.capture_add(1);
  cudaGraphNode_t child = nullptr;
  const std::vector<cudaGraphNode_t> nodes = nodes_of(parent);
  EXPECT_EQ(api().cudaGraphAddChildGraphNode(&child, parent, nodes.data(), 1, graph), cudaSuccess);
  EXPECT_EQ(type_of(child), cudaGraphNodeTypeGraph);
  EXPECT_EQ(nodes_of(parent).size(), 2U);
  EXPECT_EQ(edge_count(parent), 1U);
  EXPECT_EQ(nodes_of(graph).size(), 1U);
  EXPECT_EQ(api().cudaGraphDestroy(graph), cudaSuccess);
  const cudaGraphExec_t exec = instantiate_only(parent);
  EXPECT_EQ(api().cudaGraphLaunch(exec, used.stream), cudaSuccess);
  EXPECT_EQ(used.value(), 2);
  EXPECT_EQ(api().cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_P(Graphs, RefuseNodesOfOtherGraphs) {
  Material used;
  const cudaGraph_t graph = used.capture_add(1);
  const cudaGraph_t another = used.capture_add(1);
  const cudaGraphExec_t exec = instantiate(graph);
  const std::vector<cudaGraphNode_t> foreign = nodes_of(another);
  cudaKernelNodeParams params = {};
  cudaGraphNode_t child = nullptr;
  cudaGraphExec_t none = nullptr;
  EXPECT_EQ(api().cudaGraphKernelNodeGetParams(foreign[0], &params), cudaSuccess);
  EXPECT_EQ(api().cudaGraphExecKernelNodeSetParams(exec, foreign[0], &params), cudaErrorInvalidValue);
  EXPECT_EQ(api().cudaGraphAddChildGraphNode(&child, graph, foreign.data(), 1, another),
            cudaErrorInvalidValue);
  EXPECT_EQ(api().cudaGraphInstantiate(&none, graph, 1ULL << 40), cudaErrorInvalidValue);
  EXPECT_EQ(api().cudaGraphExecDestroy(exec), cudaSuccess);
  for (cudaGraph_t made : {graph, another}) EXPECT_EQ(api().cudaGraphDestroy(made), cudaSuccess);
}

TEST_P(Graphs, RecordExternalEventsAtEachLaunch) {
  Material used;
  EXPECT_EQ(api().cudaEventRecordWithFlags(used.event, used.stream, cudaEventRecordExternal),
            cudaErrorIllegalState);  // outside a capture
  EXPECT_EQ(api().cudaEventRecordWithFlags(used.event, used.stream, cudaEventRecordDefault), cudaSuccess);
  const cudaGraph_t graph = capture(used.stream, [&] {
    EXPECT_EQ(api().cudaEventRecordWithFlags(used.event, used.stream, cudaEventRecordExternal), cudaSuccess);
    add(used.data, 3, used.stream);
    EXPECT_EQ(api().cudaEventRecordWithFlags(used.later, used.stream, cudaEventRecordExternal), cudaSuccess);
  });
  EXPECT_EQ(type_of(nodes_of(graph).at(0)), cudaGraphNodeTypeEventRecord);
  const cudaGraphExec_t exec = instantiate_only(graph);
  EXPECT_EQ(api().cudaEventQuery(used.later), cudaSuccess);  // not recorded yet
  for (const int expected : {3, 6}) {
    EXPECT_EQ(api().cudaGraphLaunch(exec, used.stream), cudaSuccess);
    EXPECT_EQ(api().cudaStreamWaitEvent(used.other, used.later, 0), cudaSuccess);
    EXPECT_EQ(api().cudaMemcpyAsync(used.pinned, used.data, sizeof(int), cudaMemcpyDefault, used.other),
              cudaSuccess);
    EXPECT_EQ(api().cudaStreamSynchronize(used.other), cudaSuccess);
    EXPECT_EQ(*used.pinned, expected);
    EXPECT_EQ(api().cudaEventSynchronize(used.event), cudaSuccess);
    float milliseconds = -1;
    EXPECT_EQ(api().cudaEventElapsedTime(&milliseconds, used.event, used.later), cudaSuccess);
    EXPECT_GE(milliseconds, 0);
  }
  EXPECT_EQ(api().cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_P(Graphs, CannotBeUploadedToACapture) {
  Material used;
  const cudaGraphExec_t exec = instantiate_only(used.capture_add(1));
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(api().cudaStreamBeginCapture(used.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(api().cudaGraphUpload(exec, used.stream), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(api().cudaStreamEndCapture(used.stream, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(api().cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_P(Graphs, MayBeMadeUsedAndDestroyedBesideACaptureInRelaxedMode) {
  Material used;
  const cudaGraph_t graph = used.capture_add(1);
  cudaGraph_t captured = nullptr;
  EXPECT_EQ(api().cudaStreamBeginCapture(used.other, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  EXPECT_EQ(api().cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  const cudaGraphExec_t exec = instantiate(graph);
  EXPECT_EQ(api().cudaGraphUpload(exec, used.stream), cudaSuccess);
  EXPECT_EQ(api().cudaGraphLaunch(exec, used.stream), cudaSuccess);
  EXPECT_EQ(api().cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(api().cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(api().cudaStreamEndCapture(used.other, &captured), cudaSuccess);
  EXPECT_EQ(api().cudaGraphDestroy(captured), cudaSuccess);
  EXPECT_EQ(used.value(), 1);
  EXPECT_EQ(api().cudaGraphDestroy(graph), cudaSuccess);
}

TEST_P(Graphs, CannotBeMadeOrDestroyedByAThreadThatCaptures) {
  Material used;
  const cudaGraph_t graph = used.capture_add(1);
  const cudaGraphExec_t exec = instantiate(graph);
  for (const bool make : {true, false}) {
    cudaGraph_t captured = nullptr;
    cudaGraphExec_t made = nullptr;
    EXPECT_EQ(api().cudaStreamBeginCapture(used.other, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(make ? api().cudaGraphInstantiate(&made, graph, 0) : api().cudaGraphExecDestroy(exec),
              cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(api().cudaStreamEndCapture(used.other, &captured), cudaErrorStreamCaptureInvalidated);
  }
  EXPECT_EQ(api().cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(api().cudaGraphDestroy(graph), cudaSuccess);
}

TEST_P(Graphs, TakeNodesAndDependenciesWhileTheyAreCaptured) {
  Material used;
  const cudaGraph_t inner = used.capture_add(1);
  const cudaGraph_t graph = capture(used.stream, [&] {
    add(used.data, 10, used.stream);
    cudaStreamCaptureStatus status{};
    cudaGraph_t captured = nullptr;
    const cudaGraphNode_t* tips = nullptr;
    std::size_t count = 0;
    EXPECT_EQ(
        api().cudaStreamGetCaptureInfo(used.stream, &status, nullptr, &captured, &tips, nullptr, &count),
        cudaSuccess);
    cudaGraphNode_t child = nullptr;
    EXPECT_EQ(api().cudaGraphAddChildGraphNode(&child, captured, tips, count, inner), cudaSuccess);
    EXPECT_EQ(api().cudaStreamUpdateCaptureDependencies(used.stream, &child, nullptr, 1,
                                                        cudaStreamSetCaptureDependencies),
              cudaSuccess);
    add(used.data, 100, used.stream);
    EXPECT_EQ(api().cudaStreamUpdateCaptureDependencies(used.stream, nullptr, nullptr, 0,
                                                        cudaStreamSetCaptureDependencies),
              cudaSuccess);  // what is taken back need not be joined
  });
  EXPECT_EQ(edge_count(graph), 2U);
  const cudaGraphExec_t exec = instantiate_only(graph);
  EXPECT_EQ(api().cudaGraphLaunch(exec, used.stream), cudaSuccess);
  EXPECT_EQ(used.value(), 111);
  EXPECT_EQ(api().cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(api().cudaGraphDestroy(inner), cudaSuccess);
}

}  // namespace
}  // namespace burin::test
