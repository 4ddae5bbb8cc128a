#pragma once

#include <burin/graph/executor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace burin {

struct VerifyOptions {
  /// The same pass on a CPU context, from inputs on the host; absent: no comparison with the CPU.
  Forward reference{};
  /// Against the CPU: |device - cpu| <= tolerance * largest |cpu| of the tensor. 0: by dtype, 1e-4 (f32),
  /// 2e-2 (f16), 1e-1 (bf16).
  double tolerance = 0;
};

/// How an eager run, a replay and the CPU agree.
struct VerifyReport {
  struct Op {
    GraphOp op;
    std::uint64_t eager_checksum = 0;  // of the output's bytes, FNV-1a
    std::uint64_t replay_checksum = 0;
    bool is_compared = true;  // false: a later operator overwrote the output
    double cpu_error = -1;    // largest, relative to the largest magnitude; -1: not compared
  };
  std::vector<Op> ops;
  bool agrees = true;
  int first_divergence = -1;  // index in ops
  std::string message;        // one sentence, that names the operator
};

/// Runs the pass eagerly, replays a graph of it that keeps every intermediate result, and compares them bit
/// for bit, operator by operator; then with the CPU, if asked to. Throws what capture() throws.
BURIN_API VerifyReport verify(GraphExecutor& executor, std::span<const Tensor> inputs,
                              const VerifyOptions& options = {});

/// The reference for a module of any copyable type: its copy on the CPU.
template <class Module>
Forward cpu_reference(const Module& module);

}  // namespace burin
