#pragma once
// Private.

#include <burin/graph/cuda_graph.h>
#include <burin/runtime/tensor.h>

#include <cstddef>

namespace burin::detail {

/// Whether rebind_output() can succeed.
bool can_rebind_output(const CudaGraph& graph, std::size_t index);

/// Later replays write output `index` to `fresh`, a dense tensor of its spec that nobody else uses, and
/// CudaGraph::outputs() says so. False, and nothing has changed, where a library may have hidden the address,
/// or the output is a part of a larger tensor.
bool rebind_output(CudaGraph& graph, std::size_t index, const Tensor& fresh);

}  // namespace burin::detail
