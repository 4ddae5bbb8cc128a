// Which graphs an executor has: when they are captured, and when they go.

#include <burin/graph/capture_memory.h>
#include <burin/graph/executor_state.h>
#include <burin/graph/rebind.h>
#include <burin/graph/warm_up.h>
#include <burin/runtime/check.h>
#include <burin/runtime/copy.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace burin {
namespace {

using detail::ExecutorEntry;
using detail::InputKey;
using detail::Signature;

constexpr std::size_t kMostErrors = 16;

std::string describe(const Signature& signature) {
  std::string text;
  for (const InputKey& key : signature)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name(key.dtype), key.shape);
  return text;
}

std::size_t bytes_of(const Signature& signature) {
  std::size_t total = 0;
  for (const InputKey& key : signature)
    total += static_cast<std::size_t>(key.shape.count()) * item_bytes(key.dtype);
  return total;
}

/// With padded inputs, whether they have been needed yet or not.
std::size_t own_bytes(const ExecutorEntry& entry) {
  if (!entry.graph.is_captured()) return 0;
  return detail::buffer_bytes(entry.graph.outputs()) + (entry.batch > 1 ? bytes_of(entry.signature) : 0);
}

/// What makes a signature run eagerly; other errors are the caller's.
bool is_of_capture(const Error& error) {
  return dynamic_cast<const CaptureError*>(&error) || dynamic_cast<const UnsupportedError*>(&error) ||
         dynamic_cast<const OutOfMemory*>(&error);
}

}  // namespace

ExecutorEntry& GraphExecutor::State::entry_for(const Signature& signature, std::int64_t batch) {
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    if (entry->signature != signature) continue;
    entries.splice(entries.begin(), entries, entry);
    return entries.front();
  }
  return add_entry(signature, batch);
}

ExecutorEntry& GraphExecutor::State::add_entry(const Signature& signature, std::int64_t batch) {
  try {
    entries.push_front(capture_within_budget(signature, batch));
    limit_entries();
    return entries.front();
  } catch (const Error& error) {
    drop_unused_pool();
    if (options.strict || !is_of_capture(error)) throw;
    return fall_back(signature, batch, error.what());
  } catch (...) {  // of the pass
    drop_unused_pool();
    throw;
  }
}

ExecutorEntry& GraphExecutor::State::fall_back(const Signature& signature, std::int64_t batch,
                                               const std::string& reason) {
  entries.push_front({.signature = signature, .batch = batch});
  limit_entries();
  note_failure(fmt::format("{} runs without a graph: {}", describe(signature), reason));
  return entries.front();
}

/// Warns, but of nothing that is known already.
void GraphExecutor::State::note_failure(const std::string& text) {
  if (std::find(errors.begin(), errors.end(), text) != errors.end()) return;
  if (errors.size() == kMostErrors) errors.erase(errors.begin());
  errors.push_back(text);
  ctx.warn("GraphExecutor: " + text);
}

/// Other graphs go for it, the one used longest ago first. Throws CaptureError if it exceeds the budget by
/// itself.
ExecutorEntry GraphExecutor::State::capture_within_budget(const Signature& signature, std::int64_t batch) {
  require_room_for(signature, batch);
  const bool is_pool_new = !pool;
  ExecutorEntry entry = capture_entry(signature, batch);
  while (bytes_with(entry) > options.most_bytes && evict_oldest()) {
  }
  if (bytes_with(entry) > options.most_bytes && !is_pool_new) {
    // The pool is as large as its largest graph was: this one may do with less.
    entry = ExecutorEntry();
    pool = {};
    entry = capture_entry(signature, batch);
  }
  BURIN_CHECK(bytes_with(entry) <= options.most_bytes, CaptureError,
              "GraphExecutor: a graph of {} needs {} bytes, and most_bytes is {}", describe(signature),
              bytes_with(entry), options.most_bytes);
  return entry;
}

/// Throws CaptureError for what cannot fit, before other graphs go in vain.
void GraphExecutor::State::require_room_for(const Signature& signature, std::int64_t batch) {
  if (options.most_bytes == std::numeric_limits<std::size_t>::max()) return;
  const std::vector<Tensor> inputs = detail::zeros_of(ctx, signature);
  detail::WarmUp warm(ctx, forward, inputs);
  warm.run(CaptureOptions().most_warm_ups);
  const std::size_t least = warm.peak_bytes() + bytes_of(signature) * (batch > 1 ? 2 : 1);
  BURIN_CHECK(least <= options.most_bytes, CaptureError,
              "GraphExecutor: a graph of {} needs at least {} bytes, and most_bytes is {}",
              describe(signature), least, options.most_bytes);
}

ExecutorEntry GraphExecutor::State::capture_entry(const Signature& signature, std::int64_t batch) {
  if (!pool) pool = make_graph_pool(ctx);
  CaptureOptions how{.pool = pool};
  for (std::size_t i = 0; i < signature.size(); ++i) how.names.push_back(detail::name_of(options, i));
  ExecutorEntry entry{.signature = signature, .batch = batch};
  entry.graph = capture(ctx, forward, detail::zeros_of(ctx, signature), how);
  ++captures;
  detail::check_outputs(entry.graph.outputs(), batch);
  for (std::size_t i = 0; i < entry.graph.outputs().size(); ++i)
    entry.outputs.push_back(
        {detail::can_rebind_output(entry.graph, i), entry.graph.outputs()[i].buffer().use_count()});
  return entry;
}

std::size_t GraphExecutor::State::bytes_with(const ExecutorEntry& entry) const {
  std::size_t total = pool.reserved_bytes() + own_bytes(entry);
  for (const ExecutorEntry& other : entries) total += own_bytes(other);
  return total;
}

/// The graph used longest ago; false if there is none.
bool GraphExecutor::State::evict_oldest() {
  for (auto entry = entries.end(); entry != entries.begin();) {
    if (!(--entry)->graph.is_captured()) continue;
    entries.erase(entry);
    ++evictions;
    return true;
  }
  return false;
}

/// Keeps most_graphs graphs, and as many signatures that run eagerly.
void GraphExecutor::State::limit_entries() {
  const std::size_t most = std::max<std::size_t>(options.most_graphs, 1);
  std::size_t with_graph = 0;
  std::size_t without = 0;
  for (auto entry = entries.begin(); entry != entries.end();) {
    const bool is_graph = entry->graph.is_captured();
    if (++(is_graph ? with_graph : without) <= most) {
      ++entry;
      continue;
    }
    entry = entries.erase(entry);
    if (is_graph) ++evictions;
  }
}

void GraphExecutor::State::drop_unused_pool() {
  const auto has_graph = [](const ExecutorEntry& entry) { return entry.graph.is_captured(); };
  if (std::none_of(entries.begin(), entries.end(), has_graph)) pool = {};
}

/// Graphs hold parameters by address and layout, and were recorded with the context's settings of then.
void GraphExecutor::State::notice_changes() {
  const bool allow_tf32 = ctx.precision().allow_tf32;
  if (recorded_tf32 != allow_tf32 || recorded_backend != ctx.preferred()) clear();
  recorded_tf32 = allow_tf32;
  recorded_backend = ctx.preferred();
  if (!module) return;
  const auto is_new = [](const detail::WeightUse& use) {
    return use.parameter->tensor().raw() != use.address || use.parameter->tensor().spec() != use.spec;
  };
  if (!weights.empty() && std::none_of(weights.begin(), weights.end(), is_new)) return;
  if (!weights.empty()) clear();
  weights.clear();
  for (const nn::Parameter* parameter : module->parameters())
    weights.push_back({parameter, parameter->tensor().raw(), parameter->tensor().spec()});
}

void GraphExecutor::State::prepare(std::span<const Tensor> examples) {
  if (!options.graphs || ctx.device().is_cpu()) return;
  detail::check_inputs(ctx, options, examples);
  if (!options.buckets.empty()) detail::batch_of(options, examples);
  notice_changes();
  if (options.buckets.empty()) {
    entry_for(detail::signature_of(examples), -1);
    return;
  }
  for (auto bucket = options.buckets.rbegin(); bucket != options.buckets.rend(); ++bucket)
    entry_for(detail::signature_of(examples, *bucket), *bucket);
}

std::vector<GraphForecast> GraphExecutor::State::forecast(std::span<const Tensor> examples) {
  detail::check_inputs(ctx, options, examples);
  if (!options.buckets.empty()) detail::batch_of(options, examples);
  std::vector<std::int64_t> batches = options.buckets;
  if (batches.empty()) batches.push_back(-1);
  std::vector<GraphForecast> forecasts;
  for (const std::int64_t batch : batches) {
    const std::vector<Tensor> inputs = detail::zeros_of(ctx, detail::signature_of(examples, batch));
    const detail::CaptureMemoryScope memory(ctx);
    GraphForecast forecast{.batch = batch};
    const std::vector<Tensor> outputs = forward(ctx, inputs);
    ++eager_runs;
    detail::check_outputs(outputs, batch);
    forecast.output_bytes = detail::buffer_bytes(outputs);
    forecast.arena_bytes = detail::buffer_bytes(inputs);
    const std::size_t peak = memory->peak_bytes();
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
