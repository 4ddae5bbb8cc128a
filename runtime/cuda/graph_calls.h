#pragma once
// Private: what graph/ asks of CUDA, without a type of CUDA's. Graphs, executable graphs and nodes are
// cudaGraph_t, cudaGraphExec_t and cudaGraphNode_t. Calls throw CudaError or OutOfMemory, and leave the
// current device as it was and CUDA's last error clear.

#include <burin/runtime/config.h>
#include <burin/runtime/cuda/unique_handle.h>
#include <burin/runtime/event.h>
#include <burin/runtime/stream.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace burin::cuda {

void destroy_graph(void* graph) noexcept;
void destroy_graph_exec(void* exec) noexcept;  // a launch that is under way still runs to its end
struct DestroyGraph {
  void operator()(void* graph) const noexcept {
    if constexpr (kHasCuda) destroy_graph(graph);
  }
};
struct DestroyGraphExec {
  void operator()(void* exec) const noexcept {
    if constexpr (kHasCuda) destroy_graph_exec(exec);
  }
};
using GraphHandle = UniqueHandle<void*, DestroyGraph>;
using GraphExecHandle = UniqueHandle<void*, DestroyGraphExec>;

/// Whether the stream is CUDA's legacy default stream, or the default stream of a thread.
bool is_default_stream(StreamView stream) noexcept;
/// Begins to record, in thread-local mode.
void begin_capture(StreamView stream);
GraphHandle end_capture(StreamView stream);
/// Ends a capture, valid or not, and drops what it recorded.
void abandon_capture(StreamView stream) noexcept;
/// The nodes of the capture that the next one would depend on; none if it has none or was invalidated.
std::vector<void*> capture_tips(StreamView stream);
/// In a capture: a node that records the event each time the graph runs.
void record_event_node(const Event& event, StreamView stream);

enum class NodeKind : std::uint8_t { kernel, copy, fill, child, event, memory, host, other };

struct GraphShape {
  struct Node {
    void* handle;
    NodeKind kind;
  };
  std::vector<Node> nodes;  // each behind those it depends on
  std::vector<std::pair<std::size_t, std::size_t>> edges;
};
GraphShape graph_shape(void* graph);

/// A kernel node with its arguments, of which a launch takes `bytes`.
struct KernelNode {
  struct Argument {
    std::size_t offset;  // in bytes
    std::size_t bytes;
  };
  void* node = nullptr;
  const void* kernel = nullptr;
  unsigned grid[3] = {};
  unsigned block[3] = {};
  std::size_t shared_bytes = 0;
  std::vector<Argument> arguments;
  std::vector<std::byte> bytes;
};
/// `kernel` is what the node was launched with, through launch_untyped.
KernelNode read_kernel_node(void* node, const void* kernel);
/// The node takes these arguments in every later launch.
void update_kernel_node(void* exec, KernelNode& node);

/// The same in the graph itself, for those that are made of it later.
void update_template_node(KernelNode& node);

/// A child node behind what is recorded on the stream, which goes on behind it.
void add_child_to_capture(void* graph, StreamView capturing);
/// `capturing`, which has waited for `other` in one capture, goes on behind what is recorded on `other` only.
void continue_capture_after(StreamView capturing, StreamView other);

GraphExecHandle instantiate(void* graph, int device);
/// Prepares the first launch, in the order of the stream.
void upload_graph(void* exec, StreamView stream);
void launch_graph(void* exec, StreamView stream);

}  // namespace burin::cuda
