#pragma once
// Private: what a CudaGraph owns.

#include <burin/graph/bindings.h>
#include <burin/graph/capture.h>
#include <burin/graph/cuda_graph.h>
#include <burin/graph/recording.h>
#include <burin/runtime/cuda/graph_calls.h>
#include <burin/runtime/memory/capture_route.h>
#include <burin/runtime/stream_state.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace burin::detail {

/// A graph that was captured, with all that its replays touch.
struct Captured {
  Captured() = default;
  ~Captured();
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  GraphPool pool;  // goes last: it waits for replays that are under way
  Footprint footprint;
  std::shared_ptr<StreamState> stream;             // that it was captured on
  std::vector<std::shared_ptr<StreamState>> used;  // other streams that it was replayed on
  std::vector<std::shared_ptr<Buffer>> held;
  std::vector<Tensor> kept;  // see CaptureHooks
  std::vector<RandomSlot> random;
  std::vector<Binding> inputs;
  std::vector<Binding> outputs;
  std::vector<TensorSpec> input_specs;
  std::vector<Tensor> output_tensors;

  cuda::GraphHandle graph;
  cuda::GraphExecHandle exec;
  GraphKernels kernels;
  std::vector<GraphOp> ops;
  std::vector<GraphNode> nodes;
  std::uint64_t replays = 0;

  /// Runs it once, with inputs given before or now.
  void replay(StreamView stream, std::optional<std::span<const Tensor>> given = {});
  /// Records a run into a caller's capture.
  void add_to_capture(StreamView capturing);
  /// Makes them those of the replays to come. They are of the captured specs.
  void bind_inputs(StreamView stream, std::span<const Tensor> given);

 private:
  void check_inputs(std::span<const Tensor> given) const;
  void note_stream(StreamView stream);
  void bind(Binding& input, const Tensor& given) noexcept;
};

/// A capture that is under way, from its beginning to end() or the destructor, which drops it.
class GraphCapture {
 public:
  /// See CudaGraph::capture_begin.
  GraphCapture(Context& ctx, GraphPool pool, CaptureHooks hooks = {});
  ~GraphCapture();
  GraphCapture(const GraphCapture&) = delete;
  GraphCapture& operator=(const GraphCapture&) = delete;

  /// See CudaGraph::capture_end. `inputs` and `outputs` name tensors of the capture, whose home is set.
  std::unique_ptr<Captured> end(std::vector<Binding> inputs = {}, std::vector<Binding> outputs = {});

  Context& ctx() noexcept { return ctx_; }
  const GraphPool& pool() const noexcept { return pool_; }
  Recording& recording() noexcept { return *recording_; }

 private:
  void drop() noexcept;

  Context& ctx_;
  GraphPool pool_;
  std::shared_ptr<StreamState> stream_;
  std::unique_ptr<CaptureRoute> route_;
  std::unique_ptr<Recording> recording_;
  std::unique_ptr<ObserverScope> observing_;
  bool is_capturing_ = false;
};

struct GraphState {
  GraphPool pool;
  bool debug = false;
  std::unique_ptr<GraphCapture> capture;
  std::unique_ptr<Captured> captured;
};

struct GraphAccess {
  static GraphState& state(CudaGraph& graph) { return graph.state(); }
};

/// capture() with hooks.
CudaGraph capture_with(Context& ctx, const Forward& forward, std::vector<Tensor> inputs,
                       const CaptureOptions& options, const CaptureHooks& hooks);

/// Throws CaptureError for a default stream, and for one that is being captured.
void require_capturable(StreamView stream);

/// Throws CaptureError for a pool that the context's memory does not stand upon.
void require_pool_of(const Context& ctx, const GraphPool& pool);

/// A context's stream that takes part in a capture of the caller's, for a scope: it begins behind what is
/// recorded on `capturing`, and `capturing` goes on behind it.
class JoinedCapture {
 public:
  JoinedCapture(Context& ctx, StreamView capturing, const GraphPool& pool);
  ~JoinedCapture();
  JoinedCapture(const JoinedCapture&) = delete;
  JoinedCapture& operator=(const JoinedCapture&) = delete;

  Recording& recording() noexcept { return recording_; }
  void end();

 private:
  StreamView stream_;
  StreamView capturing_;
  CaptureRoute route_;
  Recording recording_;
  std::unique_ptr<ObserverScope> observing_;
  bool is_joined_ = false;
};

/// Of a graph that is captured; throws CaptureError, with `op`, if it is not.
Captured& captured_in(CudaGraph& graph, const char* op);

/// Throws CaptureError in place of a CudaError that only a capture can cause, and says who did it; otherwise
/// throws on what is being handled.
[[noreturn]] void rethrow_named(const std::string& failure);

}  // namespace burin::detail
