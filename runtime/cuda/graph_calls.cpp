#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/cuda/device_guard.h>
#include <burin/runtime/cuda/graph_calls.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>

namespace burin::cuda {
namespace {

constexpr const char* kOp = "graph";

cudaStream_t native(StreamView stream) { return static_cast<cudaStream_t>(stream.native_handle()); }
cudaGraph_t graph_of(void* graph) { return static_cast<cudaGraph_t>(graph); }
cudaGraphExec_t exec_of(void* exec) { return static_cast<cudaGraphExec_t>(exec); }
cudaGraphNode_t node_of(void* node) { return static_cast<cudaGraphNode_t>(node); }

NodeKind kind_of(cudaGraphNode_t node) {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  BURIN_CUDA(kOp, cudaGraphNodeGetType, node, &type);
  switch (type) {
    case cudaGraphNodeTypeKernel: return NodeKind::kernel;
    case cudaGraphNodeTypeMemcpy: return NodeKind::copy;
    case cudaGraphNodeTypeMemset: return NodeKind::fill;
    case cudaGraphNodeTypeGraph: return NodeKind::child;
    case cudaGraphNodeTypeEventRecord:
    case cudaGraphNodeTypeWaitEvent: return NodeKind::event;
    case cudaGraphNodeTypeMemAlloc:
    case cudaGraphNodeTypeMemFree: return NodeKind::memory;
    case cudaGraphNodeTypeHost: return NodeKind::host;
    default: return NodeKind::other;
  }
}

using Edges = std::vector<std::pair<std::size_t, std::size_t>>;

/// For each node, where it comes in an order that the edges allow.
std::vector<std::size_t> places_of(std::size_t nodes, const Edges& edges) {
  std::vector<std::vector<std::size_t>> followers(nodes);
  std::vector<std::size_t> waits(nodes, 0);
  for (const auto& [from, to] : edges) {
    followers[from].push_back(to);
    ++waits[to];
  }
  std::vector<std::size_t> ready;
  for (std::size_t i = nodes; i-- > 0;)
    if (waits[i] == 0) ready.push_back(i);
  std::vector<std::size_t> places(nodes, 0);
  for (std::size_t place = 0; !ready.empty(); ++place) {
    const std::size_t node = ready.back();
    ready.pop_back();
    places[node] = place;
    for (const std::size_t follower : followers[node])
      if (--waits[follower] == 0) ready.push_back(follower);
  }
  return places;
}

}  // namespace

void destroy_graph(void* graph) noexcept {
  const BesideCapture beside;
  ignore(api().cudaGraphDestroy(graph_of(graph)));
}

void destroy_graph_exec(void* exec) noexcept {
  const BesideCapture beside;
  ignore(api().cudaGraphExecDestroy(exec_of(exec)));
}

bool is_default_stream(StreamView stream) noexcept {
  const cudaStream_t handle = native(stream);
  return handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread;
}

void begin_capture(StreamView stream) {
  const DeviceGuard guard(stream.device().index, kOp);
  BURIN_CUDA("capture_begin", cudaStreamBeginCapture, native(stream), cudaStreamCaptureModeThreadLocal);
}

GraphHandle end_capture(StreamView stream) {
  const DeviceGuard guard(stream.device().index, kOp);
  cudaGraph_t graph = nullptr;
  const cudaError_t code = api().cudaStreamEndCapture(native(stream), &graph);
  GraphHandle owned(graph);
  check(code, "cudaStreamEndCapture", "capture_end");
  return owned;
}

void abandon_capture(StreamView stream) noexcept {
  std::optional<DeviceGuard> guard;
  try {
    guard.emplace(stream.device().index, kOp);
  } catch (...) {  // a device that is lost: the stream is told all the same
  }
  cudaGraph_t graph = nullptr;
  ignore(api().cudaStreamEndCapture(native(stream), &graph));
  if (graph) destroy_graph(graph);
}

std::vector<void*> capture_tips(StreamView stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* tips = nullptr;
  std::size_t count = 0;
  BURIN_CUDA(kOp, cudaStreamGetCaptureInfo, native(stream), &status, nullptr, nullptr, &tips, nullptr,
             &count);
  if (status != cudaStreamCaptureStatusActive) return {};
  return {tips, tips + count};
}

void record_event_node(const Event& event, StreamView stream) {
  const DeviceGuard guard(stream.device().index, kOp);
  BURIN_CUDA(kOp, cudaEventRecordWithFlags, static_cast<cudaEvent_t>(event.native_handle()), native(stream),
             cudaEventRecordExternal);
}

GraphShape graph_shape(void* graph) {
  std::size_t count = 0;
  BURIN_CUDA(kOp, cudaGraphGetNodes, graph_of(graph), nullptr, &count);
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) BURIN_CUDA(kOp, cudaGraphGetNodes, graph_of(graph), nodes.data(), &count);
  std::unordered_map<cudaGraphNode_t, std::size_t> index;
  for (std::size_t i = 0; i < nodes.size(); ++i) index[nodes[i]] = i;

  std::size_t edge_count = 0;
  BURIN_CUDA(kOp, cudaGraphGetEdges, graph_of(graph), nullptr, nullptr, nullptr, &edge_count);
  std::vector<cudaGraphNode_t> from(edge_count);
  std::vector<cudaGraphNode_t> to(edge_count);
  std::vector<cudaGraphEdgeData> data(edge_count);  // without it, edges that have some are an error
  if (edge_count > 0)
    BURIN_CUDA(kOp, cudaGraphGetEdges, graph_of(graph), from.data(), to.data(), data.data(), &edge_count);

  Edges edges;
  for (std::size_t i = 0; i < edge_count; ++i) edges.emplace_back(index.at(from[i]), index.at(to[i]));
  const std::vector<std::size_t> places = places_of(count, edges);
  GraphShape shape;
  shape.nodes.resize(count);
  for (std::size_t i = 0; i < count; ++i) shape.nodes[places[i]] = {nodes[i], kind_of(nodes[i])};
  for (const auto& [first, second] : edges) shape.edges.emplace_back(places[first], places[second]);
  return shape;
}

KernelNode read_kernel_node(void* node, const void* kernel) {
  cudaKernelNodeParams params = {};
  BURIN_CUDA(kOp, cudaGraphKernelNodeGetParams, node_of(node), &params);
  KernelNode out;
  out.node = node;
  out.kernel = kernel;
  const auto extents = [](const dim3& from, unsigned* to) {
    to[0] = from.x;
    to[1] = from.y;
    to[2] = from.z;
  };
  extents(params.gridDim, out.grid);
  extents(params.blockDim, out.block);
  out.shared_bytes = params.sharedMemBytes;
  for (std::size_t i = 0;; ++i) {
    KernelNode::Argument argument = {};
    const cudaError_t code = api().cudaFuncGetParamInfo(kernel, i, &argument.offset, &argument.bytes);
    if (code == cudaErrorInvalidValue) {  // no such parameter: that was the last
      ignore(code);
      break;
    }
    check(code, "cudaFuncGetParamInfo", kOp);
    out.arguments.push_back(argument);
    out.bytes.resize(argument.offset + argument.bytes);
    std::memcpy(&out.bytes[argument.offset], params.kernelParams[i], argument.bytes);
  }
  return out;
}

namespace {

/// Calls set(params) with the node's arguments.
template <class Set>
void with_params(KernelNode& node, Set&& set) {
  std::vector<void*> pointers;
  pointers.reserve(node.arguments.size());
  for (const KernelNode::Argument& argument : node.arguments)
    pointers.push_back(&node.bytes[argument.offset]);
  cudaKernelNodeParams params = {};
  params.func = const_cast<void*>(node.kernel);
  params.gridDim = dim3(node.grid[0], node.grid[1], node.grid[2]);
  params.blockDim = dim3(node.block[0], node.block[1], node.block[2]);
  params.sharedMemBytes = static_cast<unsigned>(node.shared_bytes);
  params.kernelParams = pointers.data();
  set(params);
}

}  // namespace

void update_kernel_node(void* exec, KernelNode& node) {
  with_params(node, [&](const cudaKernelNodeParams& params) {
    BURIN_CUDA(kOp, cudaGraphExecKernelNodeSetParams, exec_of(exec), node_of(node.node), &params);
  });
}

void update_template_node(KernelNode& node) {
  with_params(node, [&](const cudaKernelNodeParams& params) {
    BURIN_CUDA(kOp, cudaGraphKernelNodeSetParams, node_of(node.node), &params);
  });
}

void add_child_to_capture(void* graph, StreamView capturing) {
  const DeviceGuard guard(capturing.device().index, kOp);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t parent = nullptr;
  const cudaGraphNode_t* tips = nullptr;
  std::size_t count = 0;
  BURIN_CUDA("add_to_capture", cudaStreamGetCaptureInfo, native(capturing), &status, nullptr, &parent, &tips,
             nullptr, &count);
  cudaGraphNode_t child = nullptr;
  BURIN_CUDA("add_to_capture", cudaGraphAddChildGraphNode, &child, parent, tips, count, graph_of(graph));
  BURIN_CUDA("add_to_capture", cudaStreamUpdateCaptureDependencies, native(capturing), &child, nullptr, 1,
             cudaStreamSetCaptureDependencies);
}

void continue_capture_after(StreamView capturing, StreamView other) {
  std::vector<void*> tips = capture_tips(other);
  if (tips.empty()) return;
  std::vector<cudaGraphNode_t> nodes;
  for (void* tip : tips) nodes.push_back(node_of(tip));
  BURIN_CUDA("record", cudaStreamUpdateCaptureDependencies, native(capturing), nodes.data(), nullptr,
             nodes.size(), cudaStreamSetCaptureDependencies);
}

GraphExecHandle instantiate(void* graph, int device) {
  const DeviceGuard guard(device, kOp);
  const BesideCapture beside;
  cudaGraphExec_t exec = nullptr;
  BURIN_CUDA("capture_end", cudaGraphInstantiate, &exec, graph_of(graph), 0);
  return GraphExecHandle(exec);
}

void upload_graph(void* exec, StreamView stream) {
  const BesideCapture beside;
  const DeviceGuard guard(stream.device().index, kOp);
  BURIN_CUDA("capture_end", cudaGraphUpload, exec_of(exec), native(stream));
}

void launch_graph(void* exec, StreamView stream) {
  const DeviceGuard guard(stream.device().index, kOp);
  BURIN_CUDA("replay", cudaGraphLaunch, exec_of(exec), native(stream));
}

}  // namespace burin::cuda
