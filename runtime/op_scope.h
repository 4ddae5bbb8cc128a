#pragma once
// Private to Burin's operators.

#include <burin/runtime/context.h>
#include <burin/runtime/op_observer.h>
#include <burin/runtime/tensor.h>

#include <initializer_list>
#include <span>

namespace burin {

/// Stands at the head of the function that does an operator's work, for as long as it runs: tells the
/// stream's observer, if there is one, and opens an NVTX range.
class OpScope {
 public:
  OpScope(Context& ctx, const char* op, std::initializer_list<const Tensor*> inputs, const Tensor& output)
      : OpScope(ctx, op, std::span<const Tensor* const>(inputs.begin(), inputs.size()), output) {}
  /// `inputs` lives as long as the scope.
  OpScope(Context& ctx, const char* op, std::span<const Tensor* const> inputs, const Tensor& output);
  ~OpScope();
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  OpCall call_;
  OpObserver* const observer_;
  const int exceptions_;  // in flight when the scope opened
};

}  // namespace burin
