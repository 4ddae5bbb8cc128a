#include <burin/graph/dot.h>
#include <burin/graph/graph_state.h>
#include <burin/runtime/check.h>
#include <burin/runtime/config.h>
#include <burin/runtime/memory/caching_pool.h>

#include <fstream>
#include <utility>

namespace burin {
namespace detail {

Captured::~Captured() {
  // What streams still read or write is given back in their order.
  const auto note_use = [](Buffer* buffer, StreamView user) noexcept {
    try {
      buffer->record_use(user);
    } catch (...) {  // no memory for the note
      try {
        user.synchronize();
      } catch (...) {
      }
    }
  };
  const auto note = [&](Buffer* buffer) noexcept {
    if (stream) note_use(buffer, StreamView(stream.get()));
    for (const std::shared_ptr<StreamState>& user : used) note_use(buffer, StreamView(user.get()));
  };
  for (const std::shared_ptr<Buffer>& buffer : held) note(buffer.get());
  for (const RandomSlot& slot : random) note(slot.state.buffer().get());
}

GraphCapture::~GraphCapture() {
  if constexpr (kHasCuda) drop();
}

Captured& captured_in(CudaGraph& graph, const char* op) {
  GraphState& state = GraphAccess::state(graph);
  BURIN_CHECK(!state.capture, CaptureError, "{}: the graph is still recording; capture_end() comes first",
              op);
  BURIN_CHECK(state.captured, CaptureError, "{}: the graph is empty; capture something first", op);
  return *state.captured;
}

}  // namespace detail

namespace {

const detail::Captured& captured_in(const CudaGraph& graph, const char* op) {
  return detail::captured_in(const_cast<CudaGraph&>(graph), op);  // which stays as it was
}

}  // namespace

CudaGraph::CudaGraph() = default;
CudaGraph::~CudaGraph() = default;
CudaGraph::CudaGraph(CudaGraph&&) noexcept = default;
CudaGraph& CudaGraph::operator=(CudaGraph&&) noexcept = default;

detail::GraphState& CudaGraph::state() {
  if (!state_) state_ = std::make_unique<detail::GraphState>();
  return *state_;
}

void CudaGraph::capture_begin(Context& ctx, GraphPool pool) {
  detail::GraphState& graph = state();
  BURIN_CHECK(!graph.capture, CaptureError, "capture_begin: the graph is recording already");
  BURIN_CHECK(!graph.captured, CaptureError,
              "capture_begin: the graph holds a capture already; reset() lets it go");
  BURIN_CHECK(ctx.device().is_cuda(), CaptureError,
              "capture_begin: the context is of the CPU, which has no graphs; GraphExecutor runs on either");
  if constexpr (kHasCuda) {
    if (!pool) pool = graph.pool;
    graph.capture = std::make_unique<detail::GraphCapture>(ctx, std::move(pool));
    graph.pool = graph.capture->pool();
  }
}

void CudaGraph::capture_end() {
  BURIN_CHECK(is_recording(), CaptureError,
              "capture_end: the graph is not recording; capture_begin() comes first");
  if constexpr (kHasCuda) {
    const std::unique_ptr<detail::GraphCapture> capture = std::move(state_->capture);
    state_->captured = capture->end();
    if (state_->captured->nodes.empty())
      capture->ctx().warn("capture_end: the graph is empty: nothing was queued on the context's stream");
  }
}

void CudaGraph::replay(StreamView stream) {
  detail::Captured& captured = detail::captured_in(*this, "replay");
  if constexpr (kHasCuda) captured.replay(stream);
}

void CudaGraph::replay(StreamView stream, std::span<const Tensor> inputs) {
  detail::Captured& captured = detail::captured_in(*this, "replay");
  if constexpr (kHasCuda) captured.replay(stream, inputs);
}

const std::vector<Tensor>& CudaGraph::outputs() const { return captured_in(*this, "outputs").output_tensors; }
const std::vector<TensorSpec>& CudaGraph::inputs() const { return captured_in(*this, "inputs").input_specs; }
const std::vector<GraphOp>& CudaGraph::ops() const { return captured_in(*this, "ops").ops; }
const std::vector<GraphNode>& CudaGraph::nodes() const { return captured_in(*this, "nodes").nodes; }

GraphPool CudaGraph::pool() const { return state_ ? state_->pool : GraphPool(); }

void CudaGraph::set_pool(GraphPool pool) {
  BURIN_CHECK(!is_recording(), CaptureError, "set_pool: the graph is recording, to the pool that it has");
  state().pool = std::move(pool);
}

void CudaGraph::reset() {
  state().capture.reset();
  state().captured.reset();
}

bool CudaGraph::is_recording() const noexcept { return state_ && state_->capture; }
bool CudaGraph::is_captured() const noexcept { return state_ && state_->captured; }
std::uint64_t CudaGraph::replays() const noexcept { return is_captured() ? state_->captured->replays : 0; }

void CudaGraph::enable_debug_mode() { state().debug = true; }

void CudaGraph::debug_dump(const std::string& path) const {
  const std::string dot = detail::to_dot(captured_in(*this, "debug_dump"), state_->debug);
  std::ofstream file(path);
  file << dot;
  file.close();
  if (!file) throw FileError(path, -1, "", "debug_dump: could not be written");
}

void CudaGraph::add_to_capture(StreamView capturing) {
  detail::Captured& captured = detail::captured_in(*this, "add_to_capture");
  if constexpr (kHasCuda) captured.add_to_capture(capturing);
}

void* CudaGraph::native_graph() const {
  const detail::Captured& captured = captured_in(*this, "native_graph");
  BURIN_CHECK(
      captured.inputs.empty(), CaptureError,
      "native_graph: the graph has inputs of its own, which only a replay fills; use add_to_capture()");
  BURIN_CHECK(captured.random.empty(), CaptureError,
              "native_graph: the graph draws random numbers, whose place only a replay sets");
  return captured.graph.get();
}

}  // namespace burin
