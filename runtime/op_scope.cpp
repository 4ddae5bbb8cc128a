#include <burin/runtime/config.h>
#include <burin/runtime/cuda/nvtx.h>
#include <burin/runtime/op_scope.h>
#include <burin/runtime/stream_state.h>

#include <exception>
#include <utility>

namespace burin {

OpScope::OpScope(Context& ctx, const char* op, std::span<const Tensor* const> inputs, const Tensor& output)
    : call_{ctx, op, inputs, output},
      observer_(ctx.stream().state().observer()),
      exceptions_(std::uncaught_exceptions()) {
  if (observer_) observer_->op_begins(call_);
  if constexpr (kHasCuda) cuda::begin_range(op);
}

OpScope::~OpScope() {
  if constexpr (kHasCuda) cuda::end_range();
  if (observer_) observer_->op_ends(call_, std::uncaught_exceptions() > exceptions_);
}

ObserverScope::ObserverScope(StreamView stream, OpObserver* observer)
    : stream_(stream.share()), outer_(stream_->exchange_observer(observer)) {}

ObserverScope::~ObserverScope() { stream_->exchange_observer(outer_); }

}  // namespace burin
