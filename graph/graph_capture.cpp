// From a stream that begins to record to an executable graph.

#include <burin/graph/graph_state.h>
#include <burin/graph/warm_up.h>
#include <burin/runtime/check.h>
#include <burin/runtime/cuda/cuda_calls.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace burin::detail {
namespace {

constexpr const char* kKinds[] = {"kernel", "copy", "fill", "child", "event", "memory", "host", "other"};

const char* name_of(cuda::NodeKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

GraphNode::Kind public_kind(cuda::NodeKind kind) {
  switch (kind) {
    case cuda::NodeKind::kernel: return GraphNode::Kind::kernel;
    case cuda::NodeKind::copy: return GraphNode::Kind::copy;
    case cuda::NodeKind::fill: return GraphNode::Kind::fill;
    case cuda::NodeKind::child: return GraphNode::Kind::child;
    case cuda::NodeKind::event: return GraphNode::Kind::event;
    default: return GraphNode::Kind::other;
  }
}

/// Gives every node its name and the operator it belongs to: the innermost whose nodes it is among.
void attribute_nodes(Captured& captured, const Recording& recording, const cuda::GraphShape& shape) {
  std::unordered_map<const void*, std::size_t> places;
  for (std::size_t i = 0; i < shape.nodes.size(); ++i) places[shape.nodes[i].handle] = i;
  for (const auto& [handle, kind] : shape.nodes)
    captured.nodes.push_back({.kind = public_kind(kind), .name = name_of(kind)});
  for (const auto& [from, to] : shape.edges) captured.nodes[to].after.push_back(from);
  for (std::size_t call = 0; call < recording.calls.size(); ++call) {
    const Recording::Op& op = recording.calls[call];
    if (op.tip_after == op.tip_before || !op.tip_after) continue;
    const std::size_t begin = op.tip_before ? places.at(op.tip_before) + 1 : 0;
    for (std::size_t i = begin; i <= places.at(op.tip_after); ++i)
      captured.nodes[i].op = static_cast<int>(call);
  }
  for (const auto& [handle, own] : recording.own_kernels) {
    const auto place = places.find(handle);
    if (place == places.end()) continue;
    GraphNode& node = captured.nodes[place->second];
    node.is_own = true;
    node.name = own.op;
    node.op = own.call;
    node.kernel = static_cast<int>(captured.kernels.size());
    captured.kernels.add(cuda::read_kernel_node(const_cast<void*>(handle), own.kernel));
  }
}

/// The outermost operator around a call; -1 for none.
int outermost(const Recording& recording, int call) {
  while (call >= 0 && recording.calls[static_cast<std::size_t>(call)].outer >= 0)
    call = recording.calls[static_cast<std::size_t>(call)].outer;
  return call;
}

/// Whether all that uses the tensor is found: each node is a kernel of Burin's, or uses no memory, or belongs
/// to an operator that was given other tensors only.
bool is_visible(const Binding& binding, const Captured& captured, const Recording& recording) {
  const auto* begin = static_cast<const char*>(binding.home.raw());
  const char* end = begin + span_bytes(binding.home);
  for (const GraphNode& node : captured.nodes) {
    if (node.is_own || node.kind == GraphNode::Kind::event) continue;
    const int call = outermost(recording, node.op);
    if (call < 0) return false;
    for (const Recording::Range& range : recording.calls[static_cast<std::size_t>(call)].touched)
      if (range.address < end && begin < range.address + range.bytes) return false;
  }
  return true;
}

void find_sites(std::vector<Binding>& bindings, const Captured& captured, const Recording& recording) {
  for (Binding& binding : bindings) {
    binding.address = binding.home.raw();
    binding.is_patchable = is_visible(binding, captured, recording);
    if (binding.is_patchable)
      binding.sites = captured.kernels.sites_of(binding.home.raw(), span_bytes(binding.home));
  }
}

void require_replayable(const cuda::GraphShape& shape) {
  for (const auto& [handle, kind] : shape.nodes)
    BURIN_CHECK(
        kind != cuda::NodeKind::memory && kind != cuda::NodeKind::host, CaptureError,
        "capture_end: the graph has a {} node, which some other library recorded; Burin's graphs neither "
        "allocate nor call the host",
        name_of(kind));
}

/// cudaErrorStreamCaptureUnsupported to cudaErrorStreamCaptureWrongThread.
bool is_of_captures(int code) { return code >= 900 && code <= 908; }

}  // namespace

void rethrow_named(const std::string& failure) {
  try {
    throw;
  } catch (const CudaError& error) {
    if (!is_of_captures(error.code())) throw;
    throw CaptureError(failure.empty()
                           ? fmt::format("capture: {}", error.what())
                           : fmt::format("capture: {} cannot be recorded: {}", failure, error.what()));
  }
}

void require_capturable(StreamView stream) {
  BURIN_CHECK(!cuda::is_default_stream(stream), CaptureError,
              "capture: the context's stream is CUDA's default stream, which cannot be captured; give the "
              "context a stream of its own");
  BURIN_CHECK(capture_of(stream) == 0, CaptureError,
              "capture: the context's stream is being captured already; record() adds to a capture of the "
              "caller's");
}

void require_pool_of(const Context& ctx, const GraphPool& pool) {
  const CachingPool* own = caching_pool_below(*ctx.memory());
  BURIN_CHECK(own && own->made(pool), CaptureError,
              "capture: the graph pool is of another CachingPool than the context's memory");
}

GraphCapture::GraphCapture(Context& ctx, GraphPool pool, CaptureHooks hooks)
    : ctx_(ctx), pool_(std::move(pool)), stream_(ctx.stream().share()) {
  const StreamView stream = ctx.stream();
  require_capturable(stream);
  if (!pool_) pool_ = make_graph_pool(ctx);
  require_pool_of(ctx, pool_);
  route_ = std::make_unique<CaptureRoute>(pool_);
  recording_ = std::make_unique<Recording>(ctx, *route_, std::move(hooks));
  cuda::begin_capture(stream);
  is_capturing_ = true;
  try {
    route_->bind(capture_of(stream));
    observing_ = std::make_unique<ObserverScope>(stream, recording_.get());
  } catch (...) {
    drop();
    throw;
  }
}

void GraphCapture::drop() noexcept {
  observing_.reset();
  if (std::exchange(is_capturing_, false)) cuda::abandon_capture(StreamView(stream_.get()));
  recording_.reset();
  route_.reset();
}

std::unique_ptr<Captured> GraphCapture::end(std::vector<Binding> inputs, std::vector<Binding> outputs) {
  const StreamView stream(stream_.get());
  auto captured = std::make_unique<Captured>();
  captured->pool = pool_;
  captured->stream = stream_;
  try {
    for (const RandomSlot& slot : recording_->random)
      cuda::advance_random_state(stream, const_cast<void*>(slot.state.raw()), slot.drawn);
    observing_.reset();
    captured->graph = cuda::end_capture(stream);
    is_capturing_ = false;
  } catch (...) {
    const std::string failure = recording_->failure();
    drop();
    rethrow_named(failure);
  }
  captured->footprint = route_->footprint();
  const std::unique_ptr<Recording> recording = std::move(recording_);
  route_.reset();

  const cuda::GraphShape shape = cuda::graph_shape(captured->graph.get());
  require_replayable(shape);
  attribute_nodes(*captured, *recording, shape);
  find_sites(inputs, *captured, *recording);
  find_sites(outputs, *captured, *recording);
  captured->ops = std::move(recording->ops);
  captured->held = std::move(recording->held);
  captured->kept = std::move(recording->kept);
  captured->random = std::move(recording->random);
  captured->inputs = std::move(inputs);
  captured->outputs = std::move(outputs);
  captured->exec = cuda::instantiate(captured->graph.get(), stream.device().index);
  cuda::upload_graph(captured->exec.get(), stream);
  return captured;
}

JoinedCapture::JoinedCapture(Context& ctx, StreamView capturing, const GraphPool& pool)
    : stream_(ctx.stream()), capturing_(capturing), route_(pool), recording_(ctx, route_, {}) {
  route_.bind(capture_of(capturing));
  observing_ = std::make_unique<ObserverScope>(stream_, &recording_);
  stream_.wait(capturing);
  is_joined_ = true;
}

JoinedCapture::~JoinedCapture() {
  if (!is_joined_) return;
  try {
    end();
  } catch (...) {  // a capture that is no longer valid: its owner is told at its end
  }
}

void JoinedCapture::end() {
  observing_.reset();
  is_joined_ = false;
  capturing_.wait(stream_);
  cuda::continue_capture_after(capturing_, stream_);
}

}  // namespace burin::detail
