#include <burin/graph/describe.h>
#include <burin/runtime/check.h>
#include <burin/runtime/stream_state.h>

namespace burin::detail {

std::string spec_text(const TensorSpec& spec) { return fmt::format("{} {}", name(spec.dtype), spec.shape); }

std::string spec_list(std::span<const TensorSpec> specs) {
  std::string list;
  for (const TensorSpec& spec : specs) list += (list.empty() ? "" : ", ") + spec_text(spec);
  return list;
}

std::string describe_op(const char* op, const Context& ctx) {
  const std::string path = ctx.stream().state().scope().path;
  return path.empty() ? std::string(op) : fmt::format("{} in '{}'", op, path);
}

GraphOp graph_op_of(const OpCall& call) {
  GraphOp op{.name = call.op,
             .path = call.ctx.stream().state().scope().path,
             .inputs = {},
             .output = call.output.spec(),
             .bytes = call.output.bytes()};
  for (const Tensor* input : call.inputs) {
    if (!input->defined()) continue;
    op.inputs.push_back(input->spec());
    op.bytes += input->bytes();
  }
  return op;
}

}  // namespace burin::detail
