// Which graphs an executor has: when they are captured, and when they go.

#include <burin/graph/executor_state.h>
#include <burin/graph/rebind.h>
#include <burin/runtime/check.h>
#include <burin/runtime/copy.h>
#include <burin/runtime/memory/adaptors.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace burin {
namespace {

using detail::ExecutorEntry;
using detail::InputKey;
using detail::Signature;

constexpr std::size_t kMostErrors = 16;

/// Zeros of the signature's shapes: what is in them does not matter to a capture.
std::vector<Tensor> zeros_of(Context& ctx, const Signature& signature) {
  std::vector<Tensor> inputs;
  for (const InputKey& key : signature)
    inputs.push_back(to(ctx, zeros(ctx, key.shape, key.dtype), key.layout));
  return inputs;
}

std::string describe(const Signature& signature) {
  std::string text;
  for (const InputKey& key : signature)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name(key.dtype), key.shape);
  return text;
}

Signature with_batch(std::span<const Tensor> examples, std::int64_t batch) {
  Signature signature;
  for (const Tensor& x : examples) {
    BURIN_CHECK(x.defined(), ShapeError, "GraphExecutor: an example is undefined");
    BURIN_CHECK(batch < 0 || x.rank() >= 1, ShapeError,
                "GraphExecutor: an example is a scalar, and buckets are batch sizes");
    IntList extents = x.shape().extents();
    if (batch >= 0) extents[0] = batch;
    signature.push_back({x.dtype(), Shape(extents), x.layout()});
  }
  return signature;
}

}  // namespace

ExecutorEntry& GraphExecutor::State::entry_for(const Signature& signature, std::int64_t batch,
                                               std::span<const Tensor> examples) {
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    if (entry->signature != signature) continue;
    entries.splice(entries.begin(), entries, entry);
    return entries.front();
  }
  return capture_entry(signature, batch, examples);
}

CudaGraph GraphExecutor::State::capture_graph(const Signature& signature, std::span<const Tensor> examples) {
  if (!pool) pool = make_graph_pool(ctx);
  std::vector<Tensor> inputs =
      examples.empty() ? zeros_of(ctx, signature) : std::vector<Tensor>(examples.begin(), examples.end());
  CudaGraph graph = capture(ctx, forward, std::move(inputs), {.pool = pool, .names = options.names});
  ++captures;
  return graph;
}

ExecutorEntry& GraphExecutor::State::capture_entry(const Signature& signature, std::int64_t batch,
                                                   std::span<const Tensor> examples) {
  const auto fall_back = [&](const std::string& reason) -> ExecutorEntry& {
    if (errors.size() == kMostErrors) errors.erase(errors.begin());
    errors.push_back(reason);
    ctx.warn(fmt::format("GraphExecutor: {} runs without a graph: {}", describe(signature), reason));
    entries.remove_if([&](const ExecutorEntry& entry) { return entry.signature == signature; });
    entries.push_front({.signature = signature, .batch = batch});
    return entries.front();
  };
  try {
    while (entries.size() >= std::max<std::size_t>(options.most_graphs, 1)) {
      entries.pop_back();
      ++evictions;
    }
    entries.push_front({.signature = signature, .batch = batch, .graph = capture_graph(signature, examples)});
    if (!fit_budget()) {
      const std::size_t needed = bytes();
      entries.pop_front();
      if (entries.empty()) pool = {};
      const std::string reason =
          fmt::format("its {} bytes exceed the budget of {} bytes", needed, options.most_bytes);
      BURIN_CHECK(!options.strict, CaptureError, "GraphExecutor: {} has no graph: {}", describe(signature),
                  reason);
      return fall_back(reason);
    }
  } catch (const CaptureError& error) {
    if (options.strict) throw;
    return fall_back(error.what());
  } catch (const UnsupportedError& error) {
    if (options.strict) throw;
    return fall_back(error.what());
  } catch (const OutOfMemory& error) {
    if (options.strict) throw;
    return fall_back(error.what());
  }
  ExecutorEntry& entry = entries.front();
  for (std::size_t i = 0; i < entry.graph.outputs().size(); ++i)
    entry.outputs.push_back(
        {detail::can_rebind_output(entry.graph, i), entry.graph.outputs()[i].buffer().use_count()});
  return entry;
}

/// Lets other graphs go, the one used longest ago first, until the first one fits. False if it does not fit
/// even alone; it is the only one then.
bool GraphExecutor::State::fit_budget() {
  while (bytes() > options.most_bytes && entries.size() > 1) {
    entries.pop_back();
    ++evictions;
  }
  if (bytes() <= options.most_bytes) return true;
  if (captures == 1) return false;
  // The pool is as large as its largest graph was: the one that is left may do with less.
  ExecutorEntry& entry = entries.front();
  entry.graph = CudaGraph();
  pool = {};
  entry.graph = capture_graph(entry.signature, {});
  return bytes() <= options.most_bytes;
}

std::size_t GraphExecutor::State::output_bytes(const ExecutorEntry& entry) const {
  std::size_t total = 0;
  if (entry.graph.is_captured())
    for (const Tensor& output : entry.graph.outputs()) total += output.buffer()->bytes();
  for (const Tensor& input : entry.padded) total += input.buffer()->bytes();
  return total;
}

std::size_t GraphExecutor::State::bytes() const {
  std::size_t total = pool ? pool.reserved_bytes() : 0;
  for (const ExecutorEntry& entry : entries) total += output_bytes(entry);
  return total;
}

void GraphExecutor::State::notice_new_weights() {
  if (!module) return;
  const auto is_new = [](const detail::WeightUse& use) {
    return use.parameter->tensor().raw() != use.address;
  };
  if (!weights.empty() && std::none_of(weights.begin(), weights.end(), is_new)) return;
  if (!weights.empty()) clear();
  weights.clear();
  for (const nn::Parameter* parameter : module->parameters())
    weights.push_back({parameter, parameter->tensor().raw()});
}

void GraphExecutor::State::prepare(std::span<const Tensor> examples) {
  if (!options.graphs || ctx.device().is_cpu()) return;
  notice_new_weights();
  if (options.buckets.empty()) {
    entry_for(with_batch(examples, -1), -1, examples);
    return;
  }
  for (auto bucket = options.buckets.rbegin(); bucket != options.buckets.rend(); ++bucket)
    entry_for(with_batch(examples, *bucket), *bucket, {});
}

std::vector<GraphForecast> GraphExecutor::State::forecast(std::span<const Tensor> examples) {
  std::vector<std::int64_t> batches = options.buckets;
  if (batches.empty()) batches.push_back(-1);
  std::vector<GraphForecast> forecasts;
  for (const std::int64_t batch : batches) {
    const std::vector<Tensor> inputs = zeros_of(ctx, with_batch(examples, batch));
    const auto counting = std::make_shared<CountingResource>(ctx.memory());
    struct Restore {
      Context& ctx;
      std::shared_ptr<MemoryResource> memory;
      ~Restore() { ctx.exchange_memory(std::move(memory)); }
    } const restore{ctx, ctx.exchange_memory(counting)};
    GraphForecast forecast{.batch = batch};
    for (const Tensor& output : forward(ctx, inputs)) forecast.output_bytes += output.buffer()->bytes();
    ++eager_runs;
    for (const Tensor& input : inputs) forecast.arena_bytes += input.bytes();
    const std::size_t peak = counting->counts().peak_bytes;
    forecast.arena_bytes += peak - std::min(peak, forecast.output_bytes);
    forecasts.push_back(forecast);
  }
  return forecasts;
}

void GraphExecutor::State::clear() {
  entries.clear();
  pool = {};
}

}  // namespace burin
