#pragma once
// Private: what graphs tell about operators and tensors.

#include <burin/graph/cuda_graph.h>
#include <burin/runtime/op_observer.h>

#include <span>
#include <string>

namespace burin::detail {

/// "f32 [2, 3]".
std::string spec_text(const TensorSpec& spec);
/// Joined by commas.
std::string spec_list(std::span<const TensorSpec> specs);
/// "conv2d in 'layer1.0.conv1'", of the module whose scope is open.
std::string describe_op(const char* op, const Context& ctx);
/// As a graph holds it.
GraphOp graph_op_of(const OpCall& call);

}  // namespace burin::detail
