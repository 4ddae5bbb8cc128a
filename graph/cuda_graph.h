#pragma once

#include <burin/runtime/context.h>
#include <burin/runtime/export.h>
#include <burin/runtime/memory/graph_pool.h>
#include <burin/runtime/tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace burin {

namespace detail {
struct GraphAccess;
struct GraphState;
}  // namespace detail

/// A call of an operator, as a graph holds it.
struct GraphOp {
  std::string name;                // "conv2d"
  std::string path;                // of the module: "layer1.0.conv1"; empty outside modules
  std::vector<TensorSpec> inputs;  // those that are there
  TensorSpec output;
  std::size_t bytes = 0;  // of inputs and output together
};

/// One node of a graph, in an order that its edges allow.
struct GraphNode {
  enum class Kind : std::uint8_t { kernel, copy, fill, child, event, other };
  Kind kind = Kind::kernel;
  bool is_own = false;               // a kernel of Burin's, not of a library or of the caller
  std::string name;                  // of the kernel's operator, or of the kind
  int op = -1;                       // index in ops(), of the call that it belongs to; -1: none
  int kernel = -1;                   // place among Burin's own kernels; -1: none
  std::vector<std::size_t> after{};  // nodes that it waits for
};

/// Work recorded once and replayed as a whole, with everything torch.cuda.CUDAGraph does and what it leaves
/// to its user: see capture() for the safe way to make one. docs/graphs.md has the contract in full.
///
/// A graph holds what it reads and writes: its pool, and the buffer of every tensor from outside that a Burin
/// operator used in it, so nothing that it reads can be freed under it. Replays of graphs on one pool run one
/// after the other on the device, whatever their streams. A tensor that a capture left alive stays valid for
/// as long as it is held, also after the graph is gone; a replay that would overwrite one of another graph is
/// refused.
///
/// Throws CaptureError for misuse, in a plain sentence, before anything is changed. One thread at a time.
class BURIN_API CudaGraph {
 public:
  CudaGraph();
  /// A capture that was not ended is dropped; a replay that is under way finishes.
  ~CudaGraph();
  CudaGraph(CudaGraph&&) noexcept;  // what was moved from is empty, as if new
  CudaGraph& operator=(CudaGraph&&) noexcept;

  /// From here on the context's stream records instead of running, and its memory comes from `pool`: one made
  /// by the context's CachingPool, by default set_pool's or a new one. The context outlives the capture.
  /// Refused: the CPU, a default stream, a stream that is being captured, a pool that another capture records
  /// to, a graph that holds one already (reset() first).
  void capture_begin(Context& ctx, GraphPool pool = {});
  /// Instantiates and uploads what was recorded. If that throws, the stream is as before the capture and the
  /// graph is empty. Warns of an empty graph (Context::warn). Refused: a graph with allocations or host
  /// functions in it, which other libraries may have put there.
  void capture_end();

  /// Runs everything once, in the order of the stream, which may be any of the device. Inputs are those of
  /// the last replay, at first those of the capture. Refused: a stream that is being captured
  /// (add_to_capture() is for that), before capture_end().
  void replay(StreamView stream);
  /// The same with other inputs, one for each of capture()'s. Checked at every call: number, shape, dtype,
  /// device (or host). Where Burin's own kernels read an input, and it lies as it did, they read the given
  /// one; where a library has hidden the address, or the strides differ, it is copied into the graph's own.
  /// ShapeError, DTypeError and DeviceError name the input; nothing has run then.
  void replay(StreamView stream, std::span<const Tensor> inputs);
  /// Results of capture()'s callable. Each replay overwrites them. In the order of the last replay's stream.
  const std::vector<Tensor>& outputs() const;
  /// The callable's inputs as replays want them.
  const std::vector<TensorSpec>& inputs() const;

  /// Of the last capture, or of set_pool(). Pass it to other captures so that they share it.
  GraphPool pool() const;
  /// For captures to come. Refused while recording.
  void set_pool(GraphPool pool);
  /// Back to an empty graph, whose pool and debug mode stay.
  void reset();

  bool is_recording() const noexcept;
  bool is_captured() const noexcept;
  std::uint64_t replays() const noexcept;
  const std::vector<GraphOp>& ops() const;
  const std::vector<GraphNode>& nodes() const;

  /// Later debug_dump() also tells each kernel's grid, block and arguments.
  void enable_debug_mode();
  /// Writes the graph in DOT, with operators, shapes and module paths. Throws FileError.
  void debug_dump(const std::string& path) const;

  /// Records a replay into a capture that is under way on `capturing`, a stream that a caller is recording:
  /// with copies of inputs before it, where a replay would make them. The graph must outlive what the caller
  /// makes of it. Refused: a stream that is not being captured, a graph that draws random numbers.
  void add_to_capture(StreamView capturing);
  /// The cudaGraph_t of a capture_begin() and capture_end(), for cudaGraphAddChildGraphNode and the like;
  /// lives as long as this. Refused: a graph with inputs, and one that draws random numbers.
  void* native_graph() const;

 private:
  friend struct detail::GraphAccess;
  detail::GraphState& state();
  std::unique_ptr<detail::GraphState> state_;  // made when first needed
};

}  // namespace burin
