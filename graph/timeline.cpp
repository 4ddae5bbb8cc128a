#include <burin/graph/describe.h>
#include <burin/graph/timeline.h>
#include <burin/graph/timeline_twin.h>
#include <burin/runtime/check.h>
#include <burin/runtime/config.h>
#include <burin/runtime/memory/report_text.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace burin {
namespace detail {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

void place_spans(std::vector<GraphTimeline::Span>& spans, const std::vector<std::vector<double>>& runs,
                 double event_us) {
  double begin_us = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    std::vector<double> times;
    for (const std::vector<double>& run : runs) times.push_back(run[i]);
    spans[i].begin_us = begin_us;
    spans[i].duration_us = std::max(0.0, median(std::move(times)) - event_us);
    begin_us += spans[i].duration_us;
  }
}

namespace {

constexpr int kNeighbours = 16;  // events that follow another one at once

std::string event_text(const GraphTimeline::Span& span) {
  std::string inputs;
  for (const TensorSpec& input : span.op.inputs)
    inputs += (inputs.empty() ? "" : ", ") + json_text(spec_text(input));
  return fmt::format(
      R"({{"ph": "X", "cat": "op", "name": {}, "ts": {:.3f}, "dur": {:.3f}, "pid": 1, "tid": 1, )"
      R"("args": {{"path": {}, "inputs": [{}], "output": {}, "bytes": {}, "kernels": {}}}}})",
      json_text(span.op.name), span.begin_us, span.duration_us, json_text(span.op.path), inputs,
      json_text(spec_text(span.op.output)), span.op.bytes, json_text(span.kernels));
}

}  // namespace
}  // namespace detail

double GraphTimeline::sum_us() const {
  double sum = 0;
  for (const Span& span : spans) sum += span.duration_us;
  return sum;
}

std::string GraphTimeline::to_chrome_trace() const {
  std::string out = fmt::format(
      R"({{"displayTimeUnit": "ns", "otherData": {{"whole_us": {:.3f}, "event_us": {:.3f}}}, "traceEvents": [
{{"ph": "M", "name": "process_name", "pid": 1, "args": {{"name": "graph"}}}})",
      whole_us, event_us);
  for (const Span& span : spans) out += ",\n" + detail::event_text(span);
  return out + "\n]}\n";
}

GraphTimeline timeline(Context& ctx, const Forward& forward, std::span<const Tensor> inputs,
                       int repetitions) {
  BURIN_CHECK(repetitions >= 1, ShapeError, "timeline: repetitions ({}) must be at least 1", repetitions);
  BURIN_CHECK(ctx.device().is_cuda(), CaptureError,
              "timeline: the context is of the CPU, which has no graphs");
  GraphTimeline out;
  if constexpr (kHasCuda) {
    using detail::MarkedGraph;
    using Mark = MarkedGraph::Mark;
    using Inputs = std::span<const Tensor>;
    const auto between_marks = [&](Context& local, Inputs own, const Mark& mark) {
      mark();
      forward(local, own);
      mark();
    };
    const auto nothing = [](Context&, Inputs, const Mark& mark) {
      for (int i = 0; i <= detail::kNeighbours; ++i) mark();
    };
    const GraphPool pool = make_graph_pool(ctx);
    MarkedGraph whole(ctx, between_marks, inputs, pool);
    MarkedGraph parts(ctx, between_marks, inputs, pool, true);
    MarkedGraph events(ctx, nothing, {}, pool);

    std::vector<double> whole_times;
    std::vector<double> twin_times;
    std::vector<double> event_times;
    std::vector<std::vector<double>> part_times;
    for (int i = -1; i < repetitions; ++i) {
      const std::vector<double> run = whole.run();
      std::vector<double> part_run = parts.run();
      const std::vector<double> event_run = events.run();
      if (i < 0) continue;  // the first replay is slower
      whole_times.push_back(run.front());
      twin_times.push_back(std::accumulate(part_run.begin(), part_run.end(), 0.0));
      part_times.push_back(std::move(part_run));
      event_times.insert(event_times.end(), event_run.begin(), event_run.end());
    }
    const double to_last_event = detail::median(std::move(whole_times));
    const double added = detail::median(std::move(twin_times)) - to_last_event;
    out.whole_us = std::max(0.0, to_last_event - detail::median(std::move(event_times)));
    out.spans = parts.spans();
    if (!out.spans.empty()) out.event_us = std::max(0.0, added / static_cast<double>(out.spans.size()));
    detail::place_spans(out.spans, part_times, out.event_us);
  }
  return out;
}

}  // namespace burin
