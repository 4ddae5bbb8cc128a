#pragma once

#include <burin/graph/executor.h>
#include <burin/runtime/error.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace burin {

struct VerifyOptions {
  /// The same pass for a context of the CPU and inputs on the host, see cpu_reference(); absent: nothing is
  /// compared with the CPU.
  Forward reference{};
  /// Against the CPU: |device - cpu| <= tolerance * largest |cpu| of the tensor. 0: by dtype, 1e-4 (f32),
  /// 2e-2 (f16), 1e-1 (bf16), 1e-10 (f64); integers are equal.
  double tolerance = 0;
};

/// How an eager run, a replay and the CPU agree.
struct VerifyReport {
  struct Op {
    GraphOp op;
    std::uint64_t eager_checksum = 0;   // of the output's bytes in row-major order, FNV-1a; 0: not compared
    std::uint64_t replay_checksum = 0;  // of the second eager run on the CPU
    bool is_compared = true;            // false: a later operator overwrote the output
    double cpu_error = -1;              // largest, relative to the largest magnitude; -1: not compared
  };
  std::vector<Op> ops;  // those that the pass calls itself, not those within other operators
  bool agrees = true;
  int first_divergence = -1;  // index in ops; -1: none, or only the results of the pass differ
  std::string message;        // one sentence; names the operator where something differs
};

/// Runs the pass eagerly, replays a graph of it that keeps every intermediate result, and compares them bit
/// for bit, operator by operator; then with the CPU, if asked to. On the CPU, which has no graphs, two eager
/// runs are compared. Each run gets a copy of the inputs, from the same place of every generator that the
/// graph draws from. Needs memory for every output at once, twice. Throws what capture() and the passes
/// throw.
BURIN_API VerifyReport verify(Context& ctx, const Forward& forward, std::span<const Tensor> inputs,
                              const VerifyOptions& options = {});
/// The executor's pass, for the inputs as they are, not padded to a bucket; then its run(), whose results
/// must be equal bit for bit too, if it has no buckets or one of this batch.
BURIN_API VerifyReport verify(GraphExecutor& executor, std::span<const Tensor> inputs,
                              const VerifyOptions& options = {});

/// The reference for a module of any copyable type: a copy of it, moved to the CPU by a context of its
/// device.
template <class Module>
Forward cpu_reference(Context& ctx, const Module& module) {
  auto copy = std::make_shared<Module>(module);
  copy->to(ctx, Device::cpu());
  return
      [copy = std::shared_ptr<const Module>(std::move(copy))](Context& cpu, std::span<const Tensor> inputs) {
        if (inputs.size() != 1) throw ShapeError("cpu_reference: a module takes one input");
        return std::vector<Tensor>{(*copy)(cpu, inputs[0])};
      };
}

}  // namespace burin
