#pragma once

#include <burin/graph/cuda_graph.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace burin {

/// A forward pass: from inputs to outputs, with operators on the context that is passed, and nothing that
/// differs from call to call but the values.
using Forward = std::function<std::vector<Tensor>(Context&, std::span<const Tensor> inputs)>;

struct CaptureOptions {
  GraphPool pool{};                  // shared with other graphs; one of its own if absent
  std::vector<std::string> names{};  // of the inputs, for errors; "input 0", ... if absent
  int most_warm_ups = 8;
  bool debug = false;  // CudaGraph::enable_debug_mode
};

/// Records `forward` into a graph. Before that it runs eagerly until a run allocates nothing new, makes no
/// plan or library handle, loads no kernel and never waits for the device; if that does not happen within
/// `most_warm_ups` runs, CaptureError names the operator, its module path and the call at fault. Generators
/// that it draws from are set back to where they were.
///
/// In the recorded run `forward` gets tensors of the graph's own in place of `inputs`, of the same specs; so
/// a tensor that it reaches otherwise than through its arguments is one that every replay reads where it is
/// (weights). Outputs lie in memory of their own, which no other graph writes. The graph's inputs are
/// `inputs` at first.
///
/// Throws CaptureError (a CPU context: GraphExecutor runs on either), and what `forward` throws; stream,
/// memory and context are then as before.
BURIN_API CudaGraph capture(Context& ctx, const Forward& forward, std::vector<Tensor> inputs = {},
                            const CaptureOptions& options = {});

/// What a forward pass that was recorded into a caller's capture holds and gives. It must outlive every graph
/// that the caller makes of the capture.
struct RecordedPass {
  std::vector<Tensor> outputs;
  GraphPool pool;
  std::vector<std::shared_ptr<Buffer>> held;  // what it reads from outside
};

/// Records `forward` into a capture that the caller has under way on `capturing`, behind what is there, as
/// one straight line. Inputs are read where they are. The context must have run `forward` before (warm_up()),
/// and its stream must not be capturing. Refused: a stream that is not being captured.
BURIN_API RecordedPass record(Context& ctx, StreamView capturing, const Forward& forward,
                              std::vector<Tensor> inputs, GraphPool pool = {});

/// The runs before a capture, by themselves. Returns how many it took.
BURIN_API int warm_up(Context& ctx, const Forward& forward, std::span<const Tensor> inputs,
                      int most_runs = 8);

/// A pool for captures, from the CachingPool that the context's memory is or stands upon. Throws CaptureError
/// if there is none.
BURIN_API GraphPool make_graph_pool(const Context& ctx);

}  // namespace burin
