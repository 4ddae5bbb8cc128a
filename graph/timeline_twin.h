#pragma once
// Private: how long the parts of a graph take.

#include <burin/graph/capture.h>
#include <burin/graph/timeline.h>
#include <burin/runtime/event.h>

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace burin::detail {

/// A graph that records an event wherever its pass calls mark().
class MarkedGraph {
 public:
  using Mark = std::function<void()>;
  using Pass = std::function<void(Context&, std::span<const Tensor> inputs, const Mark& mark)>;

  /// `after_ops`: there is a mark after each outermost operator too. Throws what capture() throws.
  MarkedGraph(Context& ctx, const Pass& pass, std::span<const Tensor> inputs, const GraphPool& pool,
              bool after_ops = false);
  MarkedGraph(const MarkedGraph&) = delete;
  MarkedGraph& operator=(const MarkedGraph&) = delete;

  /// Replays it, waits for the end, and returns the microseconds from each mark to the next.
  std::vector<double> run();
  /// The operators that are followed by a mark, with the kernels since the mark before.
  std::vector<GraphTimeline::Span> spans() const;

 private:
  Context& ctx_;
  std::vector<Event> events_;     // of the marks; they outlive the graph, which records them
  std::vector<std::size_t> ops_;  // in the graph's ops()
  CudaGraph graph_;
};

/// The middle value, or the mean of the two in the middle. There is at least one.
double median(std::vector<double> values);

/// Gives each span its median in `runs`, each with one time for each span, less what an event costs, and
/// lets it begin where the one before it ends.
void place_spans(std::vector<GraphTimeline::Span>& spans, const std::vector<std::vector<double>>& runs,
                 double event_us);

}  // namespace burin::detail
