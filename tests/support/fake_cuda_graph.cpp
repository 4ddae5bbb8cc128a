// Graphs of the fake device: how they are made, copied and read.

#include <support/fake_cuda_state.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace burin::test {
namespace {

constexpr std::array kTypes{cudaGraphNodeTypeMemcpy, cudaGraphNodeTypeMemset, cudaGraphNodeTypeKernel,
                            cudaGraphNodeTypeEventRecord, cudaGraphNodeTypeGraph};  // by FakeWork::Kind

std::size_t index_of(const FakeNode& node) { return static_cast<std::size_t>(node.work->kind); }

cudaError_t publish(FakeState& state, std::shared_ptr<FakeGraph> graph, cudaGraph_t* out) {
  *out = handle_of(graph.get());
  state.graphs[*out] = std::move(graph);
  return cudaSuccess;
}

FakeNode* find_in(FakeGraph& graph, cudaGraphNode_t handle) {
  const auto found = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                  [&](const FakeNode& node) { return handle_of(&node) == handle; });
  return found == graph.nodes.end() ? nullptr : &*found;
}

cudaError_t add_child(FakeState& state, cudaGraphNode_t* out, cudaGraph_t handle,
                      const cudaGraphNode_t* dependencies, std::size_t count, cudaGraph_t child_handle) {
  const auto graph = state.find_graph(handle, "cudaGraphAddChildGraphNode");
  const auto child = state.find_graph(child_handle, "cudaGraphAddChildGraphNode");
  if (!graph || !child || !out || (count > 0 && !dependencies)) return cudaErrorInvalidValue;
  std::vector<FakeNode*> nodes;
  for (std::size_t i = 0; i < count; ++i) {
    FakeNode* node = find_in(*graph, dependencies[i]);
    if (!node || std::find(nodes.begin(), nodes.end(), node) != nodes.end()) return cudaErrorInvalidValue;
    nodes.push_back(node);
  }
  FakeWork work;
  work.kind = FakeWork::Kind::graph;
  work.child = state.copy_graph(*child);
  FakeNode& node = state.add_node(*graph, std::move(work), std::move(nodes));
  node.may_stay_open = true;
  *out = handle_of(&node);
  return cudaSuccess;
}

cudaError_t get_nodes(const FakeGraph& graph, cudaGraphNode_t* out, std::size_t* count) {
  if (!count) return cudaErrorInvalidValue;
  if (!out) {
    *count = graph.nodes.size();
    return cudaSuccess;
  }
  std::fill_n(out, *count, nullptr);
  *count = std::min(*count, graph.nodes.size());
  for (std::size_t i = 0; i < *count; ++i) out[i] = handle_of(&graph.nodes[i]);
  return cudaSuccess;
}

cudaError_t get_edges(const FakeGraph& graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                      cudaGraphEdgeData* data, std::size_t* count) {
  if (!count || !from != !to || (data && !from)) return cudaErrorInvalidValue;
  const std::size_t room = from ? *count : 0;
  if (from) std::fill_n(from, room, nullptr);
  if (to) std::fill_n(to, room, nullptr);
  if (data) std::fill_n(data, room, cudaGraphEdgeData{});
  std::size_t edges = 0;
  for (const FakeNode& node : graph.nodes) {
    for (const FakeNode* dependency : node.dependencies) {
      if (edges < room) {
        from[edges] = handle_of(dependency);
        to[edges] = handle_of(&node);
      }
      ++edges;
    }
  }
  *count = from ? std::min(room, edges) : edges;
  return cudaSuccess;
}

cudaError_t get_kernel(const FakeWork& work, cudaKernelNodeParams* out) {
  if (work.kind != FakeWork::Kind::kernel) return cudaErrorInvalidValue;
  if (!work.call) return cudaErrorInvalidDeviceFunction;  // a body of FakeCuda::launch
  *out = {};
  out->func = const_cast<void*>(work.call->address);
  out->gridDim = work.call->config.gridDim;
  out->blockDim = work.call->config.blockDim;
  out->sharedMemBytes = static_cast<unsigned>(work.call->config.dynamicSmemBytes);
  out->kernelParams = work.call->pointers.data();
  return cudaSuccess;
}

}  // namespace

FakeNode& FakeState::add_node(FakeGraph& graph, FakeWork work, std::vector<FakeNode*> dependencies) {
  return graph.nodes.emplace_back(FakeNode{.work = std::make_shared<const FakeWork>(std::move(work)),
                                           .dependencies = std::move(dependencies),
                                           .serial = serial,
                                           .id = next_node++});
}

std::shared_ptr<FakeGraph> FakeState::copy_graph(const FakeGraph& graph) {
  auto copy = std::make_shared<FakeGraph>(graph);
  std::unordered_map<const FakeNode*, FakeNode*> copies;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    FakeNode& node = copy->nodes[i];
    copies[&graph.nodes[i]] = &node;
    for (FakeNode*& dependency : node.dependencies) dependency = copies.at(dependency);
    node.origin = node.id;
    node.id = next_node++;
  }
  return copy;
}

std::shared_ptr<FakeGraph> FakeState::find_graph(cudaGraph_t graph, const char* function) {
  if (const auto found = graphs.find(graph); found != graphs.end()) return found->second;
  for (const std::shared_ptr<FakeCapture>& capture : captures)
    if (handle_of(capture->graph.get()) == graph) return capture->graph;
  violation(fmt::format("{}: graph {} was destroyed or never made", function, static_cast<void*>(graph)));
  return nullptr;
}

FakeNode* FakeState::find_node(cudaGraphNode_t handle, const char* function) {
  for (const auto& [key, graph] : graphs)
    if (FakeNode* node = find_in(*graph, handle)) return node;
  for (const std::shared_ptr<FakeCapture>& capture : captures)
    if (FakeNode* node = find_in(*capture->graph, handle)) return node;
  violation(fmt::format("{}: node {} is of no graph", function, static_cast<void*>(handle)));
  return nullptr;
}

void add_fake_graph(cuda::CudaApi& table) {
  table.cudaGraphCreate = [](cudaGraph_t* out, unsigned flags) {
    return fake_call("cudaGraphCreate", [&](FakeState& state, FakeThread&) {
      return out && flags == 0 ? publish(state, std::make_shared<FakeGraph>(), out) : cudaErrorInvalidValue;
    });
  };
  table.cudaGraphDestroy = [](cudaGraph_t graph) {
    return fake_call(
        "cudaGraphDestroy",
        [&](FakeState& state, FakeThread&) {
          if (state.graphs.erase(graph) == 1) return cudaSuccess;
          state.violation(fmt::format("cudaGraphDestroy: graph {} was destroyed or never made",
                                      static_cast<void*>(graph)));
          return cudaErrorInvalidValue;
        },
        FakeCall::release);
  };
  table.cudaGraphAddChildGraphNode = [](cudaGraphNode_t* out, cudaGraph_t graph,
                                        const cudaGraphNode_t* dependencies, std::size_t count,
                                        cudaGraph_t child) {
    return fake_call("cudaGraphAddChildGraphNode", [&](FakeState& state, FakeThread&) {
      return add_child(state, out, graph, dependencies, count, child);
    });
  };
  table.cudaGraphGetNodes = [](cudaGraph_t handle, cudaGraphNode_t* nodes, std::size_t* count) {
    return fake_call("cudaGraphGetNodes", [&](FakeState& state, FakeThread&) {
      const auto graph = state.find_graph(handle, "cudaGraphGetNodes");
      return graph ? get_nodes(*graph, nodes, count) : cudaErrorInvalidValue;
    });
  };
  table.cudaGraphGetEdges = [](cudaGraph_t handle, cudaGraphNode_t* from, cudaGraphNode_t* to,
                               cudaGraphEdgeData* data, std::size_t* count) {
    return fake_call("cudaGraphGetEdges", [&](FakeState& state, FakeThread&) {
      const auto graph = state.find_graph(handle, "cudaGraphGetEdges");
      return graph ? get_edges(*graph, from, to, data, count) : cudaErrorInvalidValue;
    });
  };
  table.cudaGraphNodeGetType = [](cudaGraphNode_t handle, cudaGraphNodeType* type) {
    return fake_call("cudaGraphNodeGetType", [&](FakeState& state, FakeThread&) {
      const FakeNode* node = state.find_node(handle, "cudaGraphNodeGetType");
      if (!node || !type) return cudaErrorInvalidValue;
      *type = kTypes[index_of(*node)];
      return cudaSuccess;
    });
  };
  table.cudaGraphKernelNodeGetParams = [](cudaGraphNode_t handle, cudaKernelNodeParams* out) {
    return fake_call("cudaGraphKernelNodeGetParams", [&](FakeState& state, FakeThread&) {
      const FakeNode* node = state.find_node(handle, "cudaGraphKernelNodeGetParams");
      return node && out ? get_kernel(*node->work, out) : cudaErrorInvalidValue;
    });
  };
  table.cudaGraphKernelNodeSetParams = [](cudaGraphNode_t handle, const cudaKernelNodeParams* given) {
    return fake_call("cudaGraphKernelNodeSetParams", [&](FakeState& state, FakeThread&) {
      FakeNode* node = state.find_node(handle, "cudaGraphKernelNodeSetParams");
      return node && given ? state.set_kernel(*node, *given) : cudaErrorInvalidValue;
    });
  };
}

}  // namespace burin::test
