#pragma once

#include <burin/graph/executor.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace burin {

/// When each part of a graph ran, measured on the device without a profiler: by a twin of the graph that
/// records an event after each operator.
struct BURIN_API GraphTimeline {
  /// An operator that no other one called, and what the pass queued by other means since the one before.
  struct Span {
    GraphOp op;
    std::string kernels;  // "conv2d, library, copy": Burin's own by operator, in order, repetitions once
    double begin_us = 0;  // from the beginning of the graph: where the span before ends
    double duration_us = 0;
  };
  std::vector<Span> spans;
  double whole_us = 0;  // of the graph without events between operators; median
  /// What an event between two operators adds to this graph: it also keeps the second from being set up while
  /// the first ends. The twin's time beyond whole_us in equal parts; taken off every span.
  double event_us = 0;
  double sum_us() const;
  /// For chrome://tracing or Perfetto: a complete event for each span, with module path, shapes and bytes.
  std::string to_chrome_trace() const;
};

/// Warms up and captures as capture() does, then takes each median of `repetitions` replays of each graph.
/// Throws what capture() throws, CaptureError on the CPU, ShapeError if `repetitions` is below 1.
BURIN_API GraphTimeline timeline(Context& ctx, const Forward& forward, std::span<const Tensor> inputs,
                                 int repetitions = 20);
/// Of the executor's pass at just these inputs, whatever its buckets.
inline GraphTimeline timeline(GraphExecutor& executor, std::span<const Tensor> inputs, int repetitions = 20) {
  return timeline(executor.context(), executor.forward(), inputs, repetitions);
}

}  // namespace burin
