#include <burin/graph/describe.h>
#include <burin/graph/executor_state.h>
#include <burin/runtime/check.h>

#include <set>

namespace burin {
namespace detail {

std::size_t buffer_bytes(std::span<const Tensor> tensors) {
  std::set<const Buffer*> buffers;
  std::size_t total = 0;
  for (const Tensor& x : tensors)
    if (x.defined() && buffers.insert(x.buffer().get()).second) total += x.buffer()->bytes();
  return total;
}

}  // namespace detail

namespace {

std::string bytes_text(std::size_t bytes) {
  const auto exact = static_cast<double>(bytes);
  if (bytes >= std::size_t{1} << 20) return fmt::format("{:.1f} MiB ({} bytes)", exact / (1 << 20), bytes);
  return fmt::format("{:.1f} KiB ({} bytes)", exact / (1 << 10), bytes);
}

}  // namespace

ExecutorReport GraphExecutor::State::report() const {
  ExecutorReport report;
  for (const detail::ExecutorEntry& entry : entries) {
    if (!entry.graph.is_captured()) continue;
    report.graphs.push_back(
        {.inputs = entry.graph.inputs(),
         .batch = entry.batch,
         .nodes = entry.graph.nodes().size(),
         .output_bytes = detail::buffer_bytes(entry.graph.outputs()) + detail::buffer_bytes(entry.padded),
         .replays = entry.graph.replays()});
    report.output_bytes += report.graphs.back().output_bytes;
  }
  report.arena_bytes = pool ? pool.reserved_bytes() : 0;
  report.replays = replays;
  report.eager_runs = eager_runs;
  report.captures = captures;
  report.evictions = evictions;
  report.errors = errors;
  return report;
}

std::string ExecutorReport::to_string() const {
  std::string text = fmt::format("{} graphs, shared memory {}, outputs and padded inputs {}\n", graphs.size(),
                                 bytes_text(arena_bytes), bytes_text(output_bytes));
  text += fmt::format("{} replays, {} eager runs, {} captures, {} evictions\n", replays, eager_runs, captures,
                      evictions);
  for (const Graph& graph : graphs) {
    const std::string bucket = graph.batch < 0 ? "" : fmt::format("bucket {}: ", graph.batch);
    text += fmt::format("  {}{}: {} nodes, {} replays, {}\n", bucket, detail::spec_list(graph.inputs),
                        graph.nodes, graph.replays, bytes_text(graph.output_bytes));
  }
  for (const std::string& error : errors) text += fmt::format("  {}\n", error);
  return text;
}

}  // namespace burin
