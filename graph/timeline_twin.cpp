#include <burin/graph/graph_state.h>
#include <burin/graph/timeline_twin.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/cuda/graph_calls.h>
#include <burin/runtime/stream_state.h>

#include <exception>

namespace burin::detail {
namespace {

void add_kernel(std::string& kernels, const GraphNode& node) {
  const bool is_library = node.kind == GraphNode::Kind::kernel && !node.is_own;
  const std::string& name = is_library ? "library" : node.name;
  const std::size_t last = kernels.rfind(", ");
  if (kernels.substr(last == std::string::npos ? 0 : last + 2) == name) return;
  kernels += (kernels.empty() ? "" : ", ") + name;
}

}  // namespace

MarkedGraph::MarkedGraph(Context& ctx, const Pass& pass, std::span<const Tensor> inputs,
                         const GraphPool& pool, bool after_ops)
    : ctx_(ctx) {
  const Mark mark = [&] {
    if (capture_of(ctx.stream()) == 0) return;  // a run that warms up
    {
      const BesideCapture beside;
      events_.emplace_back(ctx.device());
    }
    cuda::record_event_node(events_.back(), ctx.stream());
  };
  std::exception_ptr failure;
  CaptureHooks hooks;
  if (after_ops) {
    hooks.after_op = [&](std::size_t op) noexcept {
      if (failure) return;
      try {
        mark();
        ops_.push_back(op);
      } catch (...) {
        failure = std::current_exception();
      }
    };
  }
  const Forward forward = [&](Context& local, std::span<const Tensor> own) -> std::vector<Tensor> {
    pass(local, own, mark);
    if (failure) std::rethrow_exception(failure);
    return {};
  };
  graph_ = capture_with(ctx, forward, {inputs.begin(), inputs.end()}, {.pool = pool}, hooks);
}

std::vector<double> MarkedGraph::run() {
  graph_.replay(ctx_.stream());
  ctx_.synchronize();
  std::vector<double> times;
  for (std::size_t i = 1; i < events_.size(); ++i)
    times.push_back(1e3 * cuda::event_elapsed_ms(ctx_.device().index, events_[i - 1].native_handle(),
                                                 events_[i].native_handle()));
  return times;
}

std::vector<GraphTimeline::Span> MarkedGraph::spans() const {
  std::vector<GraphTimeline::Span> spans;
  for (const std::size_t op : ops_) spans.push_back({.op = graph_.ops()[op], .kernels = {}});
  std::size_t marks = 0;
  for (const GraphNode& node : graph_.nodes()) {
    if (node.kind == GraphNode::Kind::event)
      ++marks;
    else if (marks > 0 && marks <= spans.size())
      add_kernel(spans[marks - 1].kernels, node);
  }
  return spans;
}

}  // namespace burin::detail
