#pragma once
// Private: what a GraphExecutor owns.

#include <burin/graph/buckets.h>
#include <burin/graph/executor.h>
#include <burin/nn/parameter.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace burin {

namespace detail {

/// Of the memory that the tensors lie in.
std::size_t buffer_bytes(std::span<const Tensor> tensors);

/// What a graph is made for.
struct InputKey {
  DType dtype;
  Shape shape;
  Layout layout;
  bool operator==(const InputKey&) const = default;
};
using Signature = std::vector<InputKey>;

/// `batch` takes the place of extent 0; -1: the inputs' own stays.
Signature signature_of(std::span<const Tensor> inputs, std::int64_t batch = -1);

std::vector<Tensor> zeros_of(Context& ctx, const Signature& signature);

/// "image", or "input 0".
std::string name_of(const ExecutorOptions& options, std::size_t input);
/// Throws ShapeError and DeviceError.
void check_inputs(const Context& ctx, const ExecutorOptions& options, std::span<const Tensor> inputs);
/// Extent 0 of every input. Throws ShapeError if there is none, or they differ.
std::int64_t batch_of(const ExecutorOptions& options, std::span<const Tensor> inputs);
/// Throws ShapeError unless extent 0 of every output is the batch; -1: there are no buckets.
void check_outputs(std::span<const Tensor> outputs, std::int64_t batch);

struct ExecutorEntry {
  Signature signature;
  std::int64_t batch = -1;  // of the bucket
  CudaGraph graph{};        // empty: this signature runs eagerly
  struct Output {
    bool is_exchangeable;  // else its memory is the graph's alone, and callers get copies
    long owners;           // of its buffer besides callers
  };
  std::vector<Output> outputs{};
  std::vector<Tensor> padded{};  // inputs of the bucket's batch, for smaller ones; made when first needed
};

/// A parameter as graphs have it.
struct WeightUse {
  const nn::Parameter* parameter;
  const void* address;
  TensorSpec spec;
};

}  // namespace detail

struct GraphExecutor::State {
  Context& ctx;
  Forward forward;
  ExecutorOptions options;
  const nn::Module* module = nullptr;
  std::vector<detail::WeightUse> weights{};
  bool recorded_tf32 = false;
  Backend recorded_backend = Backend::automatic;

  std::mutex mutex{};  // of all below
  GraphPool pool{};
  std::list<detail::ExecutorEntry> entries{};  // the one used last first
  std::uint64_t replays = 0;
  std::uint64_t eager_runs = 0;
  std::uint64_t captures = 0;
  std::uint64_t evictions = 0;
  std::vector<std::string> errors{};

  std::vector<Tensor> run(std::span<const Tensor> inputs);
  void prepare(std::span<const Tensor> examples);
  std::vector<GraphForecast> forecast(std::span<const Tensor> examples);
  ExecutorReport report() const;
  void clear();

 private:
  std::vector<Tensor> run_eagerly(std::span<const Tensor> inputs, std::int64_t batch);
  std::vector<Tensor> run_piece(std::span<const Tensor> inputs, const detail::Piece& piece);
  std::vector<Tensor> replay(detail::ExecutorEntry& entry, std::span<const Tensor> inputs,
                             std::int64_t batch);
  std::span<const Tensor> padded(detail::ExecutorEntry& entry, std::span<const Tensor> inputs,
                                 std::int64_t batch);
  void free_outputs(detail::ExecutorEntry& entry);
  detail::ExecutorEntry& entry_for(const detail::Signature& signature, std::int64_t batch);
  detail::ExecutorEntry& add_entry(const detail::Signature& signature, std::int64_t batch);
  detail::ExecutorEntry& fall_back(const detail::Signature& signature, std::int64_t batch,
                                   const std::string& reason);
  detail::ExecutorEntry capture_within_budget(const detail::Signature& signature, std::int64_t batch);
  detail::ExecutorEntry capture_entry(const detail::Signature& signature, std::int64_t batch);
  void require_room_for(const detail::Signature& signature, std::int64_t batch);
  void note_failure(const std::string& text);
  std::size_t bytes_with(const detail::ExecutorEntry& entry) const;
  bool evict_oldest();
  void limit_entries();
  void drop_unused_pool();
  void notice_changes();
};

}  // namespace burin
