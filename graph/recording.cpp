#include <burin/graph/describe.h>
#include <burin/graph/recording.h>
#include <burin/runtime/allocate.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/stream_state.h>

#include <algorithm>
#include <utility>

namespace burin::detail {

std::size_t span_bytes(const Tensor& x) {
  if (x.count() == 0) return 0;
  std::int64_t last = 0;
  for (int axis = 0; axis < x.rank(); ++axis) last += (x.extent(axis) - 1) * x.strides()[axis];
  return static_cast<std::size_t>(last + 1) * item_bytes(x.dtype());
}

Recording::Recording(Context& ctx, const CaptureRoute& route, CaptureHooks hooks)
    : ctx_(ctx), route_(route), hooks_(std::move(hooks)) {}

const void* Recording::tip() const {
  if constexpr (kHasCuda) {
    const std::vector<void*> tips = cuda::capture_tips(ctx_.stream());
    if (!tips.empty()) return tips.front();
  }
  return nullptr;
}

void Recording::hold(const Tensor& x) {
  if (!x.defined() || !x.buffer()->data() || route_.has_allocated(x.buffer()->data())) return;
  if (std::find(held.begin(), held.end(), x.buffer()) == held.end()) held.push_back(x.buffer());
}

void Recording::op_begins(const OpCall& call) {
  Op extent;
  extent.outer = open_.empty() ? -1 : open_.back();
  const auto note = [&](const Tensor& x) {
    if (!x.defined()) return;
    hold(x);
    extent.touched.push_back({static_cast<const char*>(x.raw()), span_bytes(x)});
  };
  for (const Tensor* input : call.inputs) note(*input);
  note(call.output);
  extent.tip_before = tip();
  open_.reserve(open_.size() + 1);
  calls.reserve(calls.size() + 1);
  if (hooks_.keep_outputs && open_.empty()) kept.push_back(call.output);
  ops.push_back(graph_op_of(call));
  calls.push_back(std::move(extent));
  open_.push_back(static_cast<int>(ops.size()) - 1);
}

void Recording::op_ends(const OpCall& call, bool failed) noexcept {
  const auto index = static_cast<std::size_t>(open_.back());
  open_.pop_back();
  try {
    if (failed) {
      if (failure_.empty()) failure_ = describe_op(call.op, ctx_);
      return;
    }
    calls[index].tip_after = tip();
  } catch (...) {  // a capture that is no longer valid: its end says so
  }
  if (!failed && open_.empty() && hooks_.after_op) hooks_.after_op(index);
}

void Recording::kernel_queued(const char* op, const void* kernel) {
  own_kernels[tip()] = {op, kernel, open_.empty() ? -1 : open_.back()};
}

OpObserver::RandomSource Recording::draw(const Generator& generator, std::uint64_t count) {
  auto slot = std::find_if(random.begin(), random.end(),
                           [&](const RandomSlot& other) { return other.generator == generator; });
  if (slot == random.end()) {
    // Its memory is not of the capture's, which other graphs write to: it is allocated for another stream.
    [[maybe_unused]] const BesideCapture beside;
    const Stream side(ctx_.device());
    const TensorSpec spec = dense_spec(DType::i64, Shape({2}), ctx_.device());
    random.push_back({generator, allocate("draw", ctx_.memory(), side, spec)});
    slot = std::prev(random.end());
    slot->state.record_use(ctx_.stream());
    StreamView(side).synchronize();  // replays do not wait for whoever had the memory before
  }
  const RandomSource source{static_cast<const Philox*>(slot->state.raw()), slot->drawn};
  slot->drawn += count;
  return source;
}

}  // namespace burin::detail
