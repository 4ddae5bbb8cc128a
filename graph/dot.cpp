#include <burin/graph/describe.h>
#include <burin/graph/dot.h>
#include <burin/runtime/check.h>

#include <string_view>

namespace burin::detail {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string op_text(const GraphOp& op) {
  const std::string path = op.path.empty() ? std::string() : escaped(op.path) + "\\n";
  return fmt::format("{}{} -> {}\\n{} bytes", path, spec_list(op.inputs), spec_text(op.output), op.bytes);
}

std::string kernel_text(const cuda::KernelNode& kernel) {
  std::string text =
      fmt::format("grid {} x {} x {}, block {} x {} x {}, shared {} bytes", kernel.grid[0], kernel.grid[1],
                  kernel.grid[2], kernel.block[0], kernel.block[1], kernel.block[2], kernel.shared_bytes);
  for (std::size_t i = 0; i < kernel.arguments.size(); ++i) {
    text += fmt::format("\\nargument {}: ", i);
    const auto [offset, bytes] = kernel.arguments[i];
    for (std::size_t at = 0; at < bytes; ++at)
      text += fmt::format("{:02x}", static_cast<unsigned>(kernel.bytes[offset + at]));
  }
  return text;
}

}  // namespace

std::string to_dot(const Captured& captured, bool verbose) {
  std::string dot = "digraph burin {\n  node [shape=box, fontname=monospace];\n";
  for (std::size_t i = 0; i < captured.nodes.size(); ++i) {
    const GraphNode& node = captured.nodes[i];
    std::string label = fmt::format("{}: {}", i, escaped(node.name));
    if (node.op >= 0) {
      const GraphOp& op = captured.ops[static_cast<std::size_t>(node.op)];
      if (op.name != node.name) label += fmt::format(" of {}", escaped(op.name));
      label += "\\n" + op_text(op);
    }
    if (verbose && node.kernel >= 0)
      label += "\\n" + kernel_text(captured.kernels[static_cast<std::size_t>(node.kernel)]);
    dot += fmt::format("  n{} [label=\"{}\"];\n", i, label);
    for (const std::size_t before : node.after) dot += fmt::format("  n{} -> n{};\n", before, i);
  }
  return dot + "}\n";
}

}  // namespace burin::detail
