#pragma once

#include <burin/graph/capture.h>
#include <burin/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace burin {

struct ExecutorOptions {
  /// Batch sizes (extent 0 of every input and output) that graphs are made for. A smaller batch is padded to
  /// the next bucket and its outputs cut; a larger one runs in pieces of the largest bucket. Empty: a graph
  /// for each signature.
  std::vector<std::int64_t> buckets{};
  std::vector<std::string> names{};  // of the inputs, for errors; "input 1", ... for those without
  /// Most bytes of graph memory, outputs and padded inputs. The graph used longest ago goes first; what does
  /// not fit even alone runs eagerly.
  std::size_t most_bytes = std::numeric_limits<std::size_t>::max();
  std::size_t most_graphs = 64;
  bool graphs = true;   // false: everything runs eagerly
  bool strict = false;  // what cannot be captured throws instead of running eagerly
};

/// What a graph of one signature would need, before it is made: most bytes in use at once within an eager
/// run.
struct GraphForecast {
  std::int64_t batch = -1;  // of the bucket; -1 without buckets
  std::size_t arena_bytes = 0;
  std::size_t output_bytes = 0;
};

struct ExecutorReport {
  struct Graph {
    std::vector<TensorSpec> inputs;
    std::int64_t batch = -1;  // of the bucket; -1 without buckets
    std::size_t nodes = 0;
    std::size_t output_bytes = 0;  // with padded inputs, once there are some
    std::uint64_t replays = 0;
  };
  std::vector<Graph> graphs;    // the one used last first
  std::size_t arena_bytes = 0;  // shared by all graphs
  std::size_t output_bytes = 0;
  std::uint64_t replays = 0;
  std::uint64_t eager_runs = 0;  // asked for, or fallen back to
  std::uint64_t captures = 0;
  std::uint64_t evictions = 0;
  std::vector<std::string> errors;  // what runs without a graph and why, the latest last; at most 16
  std::string to_string() const;    // a table for people
};

/// Runs a forward pass by replaying graphs, one for each input signature or bucket, all in one shared pool.
/// On the CPU, and for what cannot be captured, it runs the pass eagerly, with the same results.
///
/// Outputs of run() are the caller's: no later run writes to one that is still held. Weights may be shared
/// between executors. Calls are serialised by a lock, so threads may share an executor; for speed give each
/// thread one, with a context of its own. The context's `warn` is called under that lock: it must not call
/// the executor.
class BURIN_API GraphExecutor {
 public:
  /// The context outlives the executor, and is used by it alone while run() is under way.
  GraphExecutor(Context& ctx, Forward forward, ExecutorOptions options = {});
  /// The module outlives the executor and stays where it is. When its parameters are replaced
  /// (load_state_dict, to), graphs that hold the old ones are made anew.
  GraphExecutor(Context& ctx, const nn::Module& module, ExecutorOptions options = {});
  ~GraphExecutor();
  GraphExecutor(GraphExecutor&&) noexcept;  // what was moved from may only be assigned to, and end
  GraphExecutor& operator=(GraphExecutor&&) noexcept;

  /// Inputs on the context's device, or on the host, from where they are copied. Outputs are on the device.
  /// Throws ShapeError and DeviceError for inputs that do not fit each other, and for outputs without the
  /// batch if there are buckets; what the forward pass throws; what a capture throws only if strict.
  std::vector<Tensor> run(std::span<const Tensor> inputs);
  Tensor run(const Tensor& x);  // of one input and one output

  /// Captures every bucket, the largest first, so that they share memory best; without buckets, the signature
  /// of the examples. Later runs then capture nothing. The examples' batch does not matter if there are
  /// buckets.
  void prepare(std::span<const Tensor> examples);
  /// Runs the pass eagerly, once for each bucket.
  std::vector<GraphForecast> forecast(std::span<const Tensor> examples);
  ExecutorReport report() const;
  /// Lets all graphs go.
  void clear();

  // For timelines and checks (graph/timeline.h, graph/verify.h).
  Context& context() const;
  const Forward& forward() const;
  const ExecutorOptions& options() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace burin
