#pragma once

#include <burin/graph/executor.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace burin {

/// When each part of a graph ran, measured on the device without a profiler: by a twin of the graph with
/// event-record nodes between the nodes of its operators.
struct GraphTimeline {
  struct Span {
    GraphOp op;
    std::string kernels;  // of Burin's own, by operator name; "library" otherwise
    double begin_us = 0;  // from the beginning of the graph
    double duration_us = 0;
  };
  std::vector<Span> spans;
  double event_us = 0;  // what a record of an event adds, which is taken off every span
  double whole_us = 0;  // of the graph without events, by events around it; median
  double sum_us() const;
  /// For chrome://tracing or Perfetto: a complete event for each span, with module path, shapes and bytes.
  std::string to_chrome_trace() const;
};

/// Runs `repetitions` times (at least 1) and takes each span's median. Throws what capture() throws, and
/// CaptureError on the CPU.
BURIN_API GraphTimeline timeline(Context& ctx, const Forward& forward, std::span<const Tensor> inputs,
                                 int repetitions = 20);
BURIN_API GraphTimeline timeline(GraphExecutor& executor, std::span<const Tensor> inputs,
                                 int repetitions = 20);

}  // namespace burin
