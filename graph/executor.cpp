#include <burin/graph/executor_state.h>
#include <burin/graph/rebind.h>
#include <burin/ops/concat/concat.h>
#include <burin/runtime/allocate.h>
#include <burin/runtime/check.h>
#include <burin/runtime/copy.h>

#include <algorithm>
#include <utility>

namespace burin {
namespace detail {

Signature signature_of(std::span<const Tensor> inputs, std::int64_t batch) {
  Signature signature;
  for (const Tensor& x : inputs) {
    IntList extents = x.shape().extents();
    if (batch >= 0) extents[0] = batch;
    signature.push_back({x.dtype(), Shape(extents), x.layout()});
  }
  return signature;
}

std::vector<Tensor> zeros_of(Context& ctx, const Signature& signature) {
  std::vector<Tensor> inputs;
  for (const InputKey& key : signature)
    inputs.push_back(to(ctx, zeros(ctx, key.shape, key.dtype), key.layout));
  return inputs;
}

std::string name_of(const ExecutorOptions& options, std::size_t input) {
  return input < options.names.size() ? options.names[input] : fmt::format("input {}", input);
}

void check_inputs(const Context& ctx, const ExecutorOptions& options, std::span<const Tensor> inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& x = inputs[i];
    BURIN_CHECK(x.defined(), ShapeError, "GraphExecutor: {} is undefined", name_of(options, i));
    BURIN_CHECK(x.device() == ctx.device() || x.device().is_cpu(), DeviceError,
                "GraphExecutor: {} is on {}, and must be on {} or on the host", name_of(options, i),
                name(x.device()), name(ctx.device()));
  }
}

std::int64_t batch_of(const ExecutorOptions& options, std::span<const Tensor> inputs) {
  BURIN_CHECK(!inputs.empty(), ShapeError, "GraphExecutor: with buckets there must be an input");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    BURIN_CHECK(inputs[i].rank() >= 1, ShapeError,
                "GraphExecutor: {} is a scalar, and buckets are batch sizes", name_of(options, i));
    BURIN_CHECK(inputs[i].extent(0) == inputs[0].extent(0), ShapeError,
                "GraphExecutor: the batch of {} ({}) must equal that of {} ({})", name_of(options, i),
                inputs[i].extent(0), name_of(options, 0), inputs[0].extent(0));
  }
  return inputs[0].extent(0);
}

void check_outputs(std::span<const Tensor> outputs, std::int64_t batch) {
  if (batch < 0) return;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    BURIN_CHECK(outputs[i].rank() >= 1 && outputs[i].extent(0) == batch, ShapeError,
                "GraphExecutor: output {} has shape {}, and must have the batch ({}) as its first extent to "
                "be run in buckets",
                i, outputs[i].shape(), batch);
}

}  // namespace detail

namespace {

using detail::ExecutorEntry;
using detail::Piece;

std::vector<Tensor> rows_of(std::span<const Tensor> inputs, std::int64_t begin, std::int64_t end) {
  std::vector<Tensor> rows;
  for (const Tensor& x : inputs) rows.push_back(x.slice(0, begin, end));
  return rows;
}

}  // namespace

std::vector<Tensor> GraphExecutor::State::run_eagerly(std::span<const Tensor> inputs, std::int64_t batch) {
  std::vector<Tensor> on_device;
  for (const Tensor& x : inputs) on_device.push_back(to(ctx, x, ctx.device()));
  ++eager_runs;
  std::vector<Tensor> outputs = forward(ctx, on_device);
  detail::check_outputs(outputs, batch);
  return outputs;
}

std::vector<Tensor> GraphExecutor::State::run(std::span<const Tensor> inputs) {
  detail::check_inputs(ctx, options, inputs);
  const std::int64_t batch = options.buckets.empty() ? -1 : detail::batch_of(options, inputs);
  if (!options.graphs || ctx.device().is_cpu() || batch == 0) return run_eagerly(inputs, batch);
  notice_changes();
  if (batch < 0) {
    ExecutorEntry& entry = entry_for(detail::signature_of(inputs), -1);
    return entry.graph.is_captured() ? replay(entry, inputs, -1) : run_eagerly(inputs, -1);
  }
  const std::vector<Piece> pieces = detail::pieces_of(batch, options.buckets);
  if (pieces.size() == 1) return run_piece(inputs, pieces.front());
  std::vector<std::vector<Tensor>> parts;  // by output
  for (const Piece& piece : pieces) {
    std::vector<Tensor> results = run_piece(rows_of(inputs, piece.begin, piece.end), piece);
    parts.resize(results.size());
    for (std::size_t i = 0; i < results.size(); ++i) parts[i].push_back(std::move(results[i]));
  }
  std::vector<Tensor> joined;
  for (const std::vector<Tensor>& part : parts) joined.push_back(concat(ctx, part));
  return joined;
}

std::vector<Tensor> GraphExecutor::State::run_piece(std::span<const Tensor> inputs, const Piece& piece) {
  const std::int64_t batch = piece.end - piece.begin;
  ExecutorEntry& entry = entry_for(detail::signature_of(inputs, piece.bucket), piece.bucket);
  if (!entry.graph.is_captured()) return run_eagerly(inputs, batch);
  return replay(entry, batch == piece.bucket ? inputs : padded(entry, inputs, batch), batch);
}

/// The inputs at the head of tensors of the bucket's batch, whose other rows are whatever ran there before,
/// at first zeros.
std::span<const Tensor> GraphExecutor::State::padded(ExecutorEntry& entry, std::span<const Tensor> inputs,
                                                     std::int64_t batch) {
  if (entry.padded.empty()) entry.padded = detail::zeros_of(ctx, entry.signature);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensor rows = entry.padded[i].slice(0, 0, batch);
    copy(ctx, rows, inputs[i]);
  }
  return entry.padded;
}

std::vector<Tensor> GraphExecutor::State::replay(ExecutorEntry& entry, std::span<const Tensor> inputs,
                                                 std::int64_t batch) {
  std::vector<Tensor> results;
  try {
    free_outputs(entry);
    entry.graph.replay(ctx.stream(), inputs);
  } catch (const CaptureError& error) {  // of a replay that is refused: nothing has run
    if (options.strict) throw;
    note_failure(error.what());
    for (Tensor& output : run_eagerly(inputs, entry.batch))
      results.push_back(batch < entry.batch ? output.slice(0, 0, batch) : std::move(output));
    return results;
  }
  ++replays;
  results.reserve(entry.outputs.size());
  for (std::size_t i = 0; i < entry.outputs.size(); ++i) {
    const Tensor& output = entry.graph.outputs()[i];
    const Tensor result = batch < entry.batch ? output.slice(0, 0, batch) : output;
    results.push_back(entry.outputs[i].is_exchangeable ? result
                                                       : to(ctx, clone(ctx, result), result.layout()));
  }
  return results;
}

/// Outputs that a caller still holds are left to it: the graph gets other memory for them.
void GraphExecutor::State::free_outputs(ExecutorEntry& entry) {
  for (std::size_t i = 0; i < entry.outputs.size(); ++i) {
    ExecutorEntry::Output& state = entry.outputs[i];
    if (!state.is_exchangeable) continue;
    const Tensor& output = entry.graph.outputs()[i];
    if (output.buffer().use_count() <= state.owners && !output.buffer()->is_used_elsewhere()) continue;
    const bool has_moved = detail::rebind_output(
        entry.graph, i, allocate("GraphExecutor", ctx.memory(), ctx.stream(), output.spec()));
    BURIN_CHECK(has_moved, CaptureError,
                "GraphExecutor: output {} is still held, and its graph cannot write elsewhere", i);
    state.owners = entry.graph.outputs()[i].buffer().use_count();
  }
}

GraphExecutor::GraphExecutor(Context& ctx, Forward forward, ExecutorOptions options) {
  BURIN_CHECK(forward, Error, "GraphExecutor: the callable is empty");
  options.buckets = detail::sorted_buckets(std::move(options.buckets));
  state_.reset(new State{.ctx = ctx, .forward = std::move(forward), .options = std::move(options)});
}

GraphExecutor::GraphExecutor(Context& ctx, const nn::Module& module, ExecutorOptions options)
    : GraphExecutor(
          ctx,
          [&module](Context& c, std::span<const Tensor> inputs) {
            BURIN_CHECK(inputs.size() == 1, ShapeError,
                        "GraphExecutor: a module takes 1 input, and {} are given", inputs.size());
            return std::vector<Tensor>{module(c, inputs[0])};
          },
          std::move(options)) {
  state_->module = &module;
}

GraphExecutor::~GraphExecutor() = default;
GraphExecutor::GraphExecutor(GraphExecutor&&) noexcept = default;
GraphExecutor& GraphExecutor::operator=(GraphExecutor&&) noexcept = default;

std::vector<Tensor> GraphExecutor::run(std::span<const Tensor> inputs) {
  const std::lock_guard lock(state_->mutex);
  return state_->run(inputs);
}

Tensor GraphExecutor::run(const Tensor& x) {
  std::vector<Tensor> outputs = run(std::span(&x, 1));
  BURIN_CHECK(outputs.size() == 1, ShapeError, "GraphExecutor: run(x) is for one output, and there are {}",
              outputs.size());
  return std::move(outputs.front());
}

void GraphExecutor::prepare(std::span<const Tensor> examples) {
  const std::lock_guard lock(state_->mutex);
  state_->prepare(examples);
}

std::vector<GraphForecast> GraphExecutor::forecast(std::span<const Tensor> examples) {
  const std::lock_guard lock(state_->mutex);
  return state_->forecast(examples);
}

ExecutorReport GraphExecutor::report() const {
  const std::lock_guard lock(state_->mutex);
  return state_->report();
}

void GraphExecutor::clear() {
  const std::lock_guard lock(state_->mutex);
  state_->clear();
}

Context& GraphExecutor::context() const { return state_->ctx; }
const Forward& GraphExecutor::forward() const { return state_->forward; }
const ExecutorOptions& GraphExecutor::options() const { return state_->options; }

}  // namespace burin
