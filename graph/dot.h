#pragma once
// Private: graphs as text in the language of Graphviz.

#include <burin/graph/graph_state.h>

#include <string>

namespace burin::detail {

/// `verbose`: with each of Burin's kernels' grid, block and arguments.
std::string to_dot(const Captured& captured, bool verbose);

}  // namespace burin::detail
