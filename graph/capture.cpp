#include <burin/graph/capture.h>
#include <burin/graph/capture_memory.h>
#include <burin/graph/graph_state.h>
#include <burin/graph/warm_up.h>
#include <burin/runtime/allocate.h>
#include <burin/runtime/check.h>
#include <burin/runtime/config.h>
#include <burin/runtime/copy.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace burin {
namespace detail {
namespace {

/// The inputs as the graph will have them: on the device and dense.
std::vector<Tensor> normalized(Context& ctx, std::vector<Tensor> inputs,
                               const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    BURIN_CHECK(inputs[i].defined(), ShapeError, "capture: {} is undefined", names[i]);
    inputs[i] = to(ctx, inputs[i], ctx.device());
    if (!inputs[i].is_dense_in(inputs[i].layout())) inputs[i] = contiguous(ctx, inputs[i]);
  }
  return inputs;
}

std::vector<std::string> names_of(std::vector<std::string> names, std::size_t inputs) {
  BURIN_CHECK(names.empty() || names.size() == inputs, CaptureError,
              "capture: {} inputs and {} names are given", inputs, names.size());
  for (std::size_t i = names.size(); i < inputs; ++i) names.push_back(fmt::format("input {}", i));
  return names;
}

/// The same memory without owning it, for tensors whose memory the capture gives back.
Tensor borrowed(const Tensor& x) {
  return Tensor::from_blob(const_cast<void*>(x.raw()), x.shape(), x.strides(), x.dtype(), x.device());
}

/// Memory for the outputs of one graph, from outside its pool, and where in a run it is to be handed out.
struct OutputMemory {
  std::vector<std::shared_ptr<Buffer>> buffers;  // of each output; null: it is copied to its landing
  std::vector<Tensor> landings;
  std::map<std::size_t, std::shared_ptr<Buffer>> served;

  OutputMemory(Context& ctx, const std::vector<WarmUp::Output>& outputs, bool in_place) {
    for (const auto& [spec, layout, request, bytes] : outputs) {
      std::shared_ptr<Buffer> buffer;
      Tensor landing;
      if (in_place && request) {
        std::shared_ptr<Buffer>& shared = served[*request];
        if (!shared) shared = Buffer::allocate(ctx.memory(), bytes, ctx.stream());
        buffer = shared;
      } else {
        landing = empty(ctx, spec.shape, spec.dtype, layout);
      }
      buffers.push_back(std::move(buffer));
      landings.push_back(std::move(landing));
    }
  }

  /// The output `i` of the graph, given what the recorded run returned; nothing if that does not lie where it
  /// was to. What has no memory of its own is copied, as a part of the graph.
  std::optional<Tensor> land(Context& ctx, std::size_t i, const Tensor& result) {
    if (landings[i].defined()) {
      copy(ctx, landings[i], result);
      return landings[i];
    }
    const std::shared_ptr<Buffer>& buffer = buffers[i];
    if (result.buffer()->data() != buffer->data()) return std::nullopt;
    const auto offset = static_cast<const char*>(result.raw()) - static_cast<const char*>(buffer->data());
    return Tensor(buffer, result.dtype(), result.shape(), result.strides(),
                  offset / static_cast<std::ptrdiff_t>(item_bytes(result.dtype())));
  }

  /// Whether other memory can take the place of output i: it fills its buffer, and no other output lies
  /// there.
  bool is_exchangeable(std::size_t i, const Tensor& output) const {
    for (std::size_t other = 0; other < buffers.size(); ++other)
      if (other != i && buffers[i] && buffers[other] == buffers[i]) return false;
    return output.is_dense_in(output.layout()) && output.bytes() == output.buffer()->bytes();
  }
};

void check_results(const std::vector<Tensor>& results, const std::vector<WarmUp::Output>& expected) {
  BURIN_CHECK(results.size() == expected.size(), CaptureError,
              "capture: the callable returned {} tensors when it was recorded and {} when it was warmed up",
              results.size(), expected.size());
  for (std::size_t i = 0; i < results.size(); ++i)
    BURIN_CHECK(results[i].defined() && results[i].spec() == expected[i].spec, CaptureError,
                "capture: output {} of the callable had another shape, dtype or layout when it was recorded "
                "than when it was warmed up",
                i);
}

/// Throws CaptureError unless each node waits for the one before: of work on another stream it is not known
/// which tensors it reads, and for how long.
void require_one_stream(const Captured& captured) {
  for (std::size_t i = 0; i < captured.nodes.size(); ++i) {
    const std::vector<std::size_t>& after = captured.nodes[i].after;
    const bool is_next = std::find(after.begin(), after.end(), i - 1) != after.end();
    BURIN_CHECK(i == 0 || is_next, CaptureError,
                "capture: the callable queued work on more than one stream; capture_begin() records that");
  }
}

/// One recorded run. Nothing if an output does not lie in the memory that was made for it.
std::unique_ptr<Captured> attempt(Context& ctx, const Forward& forward, const std::vector<Tensor>& inputs,
                                  const std::vector<std::string>& names, const GraphPool& pool,
                                  const WarmUp& warm, const CaptureHooks& hooks, bool in_place) {
  OutputMemory memory(ctx, warm.outputs(), in_place);
  const CaptureMemoryScope requests(ctx);
  GraphCapture capture(ctx, pool, hooks);
  std::vector<Tensor> homes;
  std::vector<Binding> input_bindings;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TensorSpec spec =
        dense_spec(inputs[i].dtype(), inputs[i].shape(), ctx.device(), inputs[i].layout());
    homes.push_back(allocate("capture", ctx.memory(), ctx.stream(), spec));
    input_bindings.push_back({.name = names[i], .spec = spec, .home = borrowed(homes.back())});
  }
  requests->restart(memory.served);

  std::vector<Tensor> outputs;
  std::vector<Binding> output_bindings;
  try {
    std::vector<Tensor> results = forward(ctx, homes);
    check_results(results, warm.outputs());
    for (std::size_t i = 0; i < results.size(); ++i) {
      std::optional<Tensor> output = memory.land(ctx, i, results[i]);
      if (!output) return nullptr;
      outputs.push_back(*output);
    }
  } catch (...) {
    rethrow_named(capture.recording().failure());
  }
  for (std::size_t i = 0; i < outputs.size(); ++i)
    output_bindings.push_back(
        {.name = fmt::format("output {}", i), .spec = outputs[i].spec(), .home = outputs[i]});
  homes.clear();  // their memory is the pool's again: only replays use it, which fill it first

  std::unique_ptr<Captured> captured = capture.end(std::move(input_bindings), std::move(output_bindings));
  require_one_stream(*captured);
  // The memory of outputs is held by their tensors, which may be exchanged.
  std::erase_if(captured->held, [&](const std::shared_ptr<Buffer>& buffer) {
    const auto is_same = [&](const auto& served) { return served.second->data() == buffer->data(); };
    return std::any_of(memory.served.begin(), memory.served.end(), is_same);
  });
  if (hooks.keep_outputs)  // a pass may write to its inputs, and what it wrote is compared
    for (Binding& input : captured->inputs) input.is_patchable = false;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (!memory.is_exchangeable(i, outputs[i])) captured->outputs[i].is_patchable = false;
  for (const Binding& input : captured->inputs) captured->input_specs.push_back(input.spec);
  captured->output_tensors = std::move(outputs);
  return captured;
}

}  // namespace

CudaGraph capture_with(Context& ctx, const Forward& forward, std::vector<Tensor> inputs,
                       const CaptureOptions& options, const CaptureHooks& hooks) {
  BURIN_CHECK(ctx.device().is_cuda(), CaptureError,
              "capture: the context is of the CPU, which has no graphs; GraphExecutor runs on either");
  CudaGraph graph;
  if constexpr (kHasCuda) {
    const std::vector<std::string> names = names_of(options.names, inputs.size());
    require_capturable(ctx.stream());
    const std::vector<Tensor> given = inputs;
    inputs = normalized(ctx, std::move(inputs), names);
    const GraphPool pool = options.pool ? options.pool : make_graph_pool(ctx);
    WarmUp warm(ctx, forward, inputs);
    warm.run(options.most_warm_ups);
    std::unique_ptr<Captured> captured = attempt(ctx, forward, inputs, names, pool, warm, hooks, true);
    if (!captured) captured = attempt(ctx, forward, inputs, names, pool, warm, hooks, false);
    if (captured->nodes.empty()) ctx.warn("capture: the graph is empty: the callable queued nothing");
    captured->bind_inputs(ctx.stream(), given);  // which the warm-up has checked
    GraphState& state = GraphAccess::state(graph);
    state.pool = pool;
    state.debug = options.debug;
    state.captured = std::move(captured);
  }
  return graph;
}

}  // namespace detail

CudaGraph capture(Context& ctx, const Forward& forward, std::vector<Tensor> inputs,
                  const CaptureOptions& options) {
  return detail::capture_with(ctx, forward, std::move(inputs), options, {});
}

RecordedPass record(Context& ctx, StreamView capturing, const Forward& forward, std::vector<Tensor> inputs,
                    GraphPool pool) {
  BURIN_CHECK(ctx.device().is_cuda() && capturing.device() == ctx.device(), CaptureError,
              "record: the context is of {} and the stream of {}; both must be of one CUDA device",
              name(ctx.device()), name(capturing.device()));
  RecordedPass out;
  if constexpr (kHasCuda) {
    BURIN_CHECK(detail::capture_of(capturing) != 0, CaptureError,
                "record: the stream is not being captured; capture() makes a graph by itself");
    detail::require_capturable(ctx.stream());
    out.pool = pool ? std::move(pool) : make_graph_pool(ctx);
    detail::require_pool_of(ctx, out.pool);
    detail::JoinedCapture joined(ctx, capturing, out.pool);
    try {
      for (const Tensor& input : inputs) joined.recording().hold(input);
      out.outputs = forward(ctx, inputs);
      BURIN_CHECK(
          joined.recording().random.empty(), CaptureError,
          "record: the callable draws random numbers, which would be the same in every run of the caller's "
          "graph");
    } catch (...) {
      detail::rethrow_named(joined.recording().failure());
    }
    joined.end();
    out.held = std::move(joined.recording().held);
  }
  return out;
}

}  // namespace burin
