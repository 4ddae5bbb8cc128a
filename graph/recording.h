#pragma once
// Private: what a capture learns about its own nodes.

#include <burin/graph/cuda_graph.h>
#include <burin/runtime/cuda/graph_calls.h>
#include <burin/runtime/memory/capture_route.h>
#include <burin/runtime/op_observer.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace burin::detail {

/// What else is to happen while a pass is recorded.
struct CaptureHooks {
  std::function<void(std::size_t op)>
      after_op{};             // after each outermost operator, by its index in ops(); noexcept
  bool keep_outputs = false;  // of outermost operators, alive in the graph
};

/// {seed, offset} of a generator on the device, of one graph.
struct RandomSlot {
  Generator generator;
  Tensor state;             // two u64, as i64
  std::uint64_t drawn = 0;  // elements in one run
  Philox on_device = {};    // what the last launch leaves there
  bool is_known = false;    // on_device is right
};

class Recording final : public OpObserver {
 public:
  Recording(Context& ctx, const CaptureRoute& route, CaptureHooks hooks);

  void op_begins(const OpCall& call) override;
  void op_ends(const OpCall& call, bool failed) noexcept override;
  void kernel_queued(const char* op, const void* kernel) override;
  RandomSource draw(const Generator& generator, std::uint64_t count) override;

  /// Holds the tensor's memory for as long as the graph, if it is from outside the capture.
  void hold(const Tensor& x);
  /// The operator that failed first, with its path; empty if none did.
  const std::string& failure() const noexcept { return failure_; }

  struct Range {
    const char* address;
    std::size_t bytes;
  };
  struct Op {
    int outer = -1;                    // the operator that it runs within
    std::vector<Range> touched;        // memory of its inputs and output
    const void* tip_before = nullptr;  // the last node when it began and ended; null: none yet
    const void* tip_after = nullptr;
  };
  struct OwnKernel {
    const char* op;
    const void* kernel;
    int call;  // the operator that launched it; -1: none
  };
  // Taken over by the graph.
  std::vector<GraphOp> ops;
  std::vector<Op> calls;                                   // one for each of ops
  std::unordered_map<const void*, OwnKernel> own_kernels;  // by node
  std::vector<std::shared_ptr<Buffer>> held;
  std::vector<Tensor> kept;
  std::vector<RandomSlot> random;

 private:
  const void* tip() const;

  Context& ctx_;
  const CaptureRoute& route_;
  const CaptureHooks hooks_;
  std::vector<int> open_;  // indices in ops
  std::string failure_;
};

/// The bytes that a tensor spans, from its first element.
std::size_t span_bytes(const Tensor& x);

}  // namespace burin::detail
