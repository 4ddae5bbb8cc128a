// Running a captured graph: what is checked, exchanged and put in order before the launch.

#include <burin/graph/graph_state.h>
#include <burin/runtime/check.h>
#include <burin/runtime/context.h>
#include <burin/runtime/copy.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/cuda/nvtx.h>

#include <algorithm>
#include <utility>

namespace burin::detail {
namespace {

void check_input(const Binding& input, const Tensor& given) {
  BURIN_CHECK(given.defined(), ShapeError, "replay: {} is undefined", input.name);
  BURIN_CHECK(given.dtype() == input.spec.dtype, DTypeError, "replay: {} must be {}, as captured, and is {}",
              input.name, name(input.spec.dtype), name(given.dtype()));
  BURIN_CHECK(given.shape() == input.spec.shape, ShapeError,
              "replay: {} must have shape {}, as captured, and has {}", input.name, input.spec.shape,
              given.shape());
  BURIN_CHECK(given.device() == input.spec.device || given.device().is_cpu(), DeviceError,
              "replay: {} must be on {} or on the host, and is on {}", input.name, name(input.spec.device),
              name(given.device()));
}

bool is_bound(const Binding& input, const Tensor& given) {
  return input.bound.raw() == given.raw() && input.bound.buffer() == given.buffer() &&
         input.bound.spec() == given.spec();
}

/// In the order of the stream, from the device or the host, and from any strides. Returns what is read.
Tensor copy_into_home(StreamView stream, Binding& input) {
  Tensor from = input.bound;
  Tensor& home = input.home;
  if (from.count() == 0) return from;
  if (from.device().is_cpu() && !from.is_dense_in(home.layout())) {
    Context host(Device::cpu(), {.threads = 1});
    from = to(host, from, home.layout());
  }
  if (from.is_dense_in(home.layout())) {
    cuda::copy_bytes(stream, home.raw(), from.raw(), from.bytes());
  } else {
    const auto loop = make_strided_loop<2>(home.shape(), {home.strides(), from.strides()});
    cuda::copy_strided(stream, home.dtype(), home.raw(), from.dtype(), from.raw(), loop);
  }
  return from;
}

bool reads_in_place(const Binding& input) {
  return input.bound.defined() && input.address == input.bound.raw();
}

}  // namespace

void Captured::note_stream(StreamView user) {
  if (user == StreamView(stream.get())) return;
  const auto is_user = [&](const auto& known) { return StreamView(known.get()) == user; };
  if (std::any_of(used.begin(), used.end(), is_user)) return;
  if (replays == 0 && capture_of(StreamView(stream.get())) == 0) user.wait(StreamView(stream.get()));
  used.push_back(user.share());
  for (const Binding& output : outputs) output.home.record_use(user);
  for (const Binding& input : inputs)
    if (input.bound.defined()) input.bound.record_use(user);
}

void Captured::check_inputs(std::span<const Tensor> given) const {
  BURIN_CHECK(given.size() == inputs.size(), ShapeError, "replay: {} inputs were captured and {} given",
              inputs.size(), given.size());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!is_bound(inputs[i], given[i])) check_input(inputs[i], given[i]);
}

void Captured::bind_inputs(StreamView user, std::span<const Tensor> given) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (is_bound(inputs[i], given[i])) continue;
    given[i].record_use(user);
    // A later replay with the same inputs does not come here.
    given[i].record_use(StreamView(stream.get()));
    for (const std::shared_ptr<StreamState>& other : used) given[i].record_use(StreamView(other.get()));
  }
  // All or none: only what is above can fail.
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!is_bound(inputs[i], given[i])) bind(inputs[i], given[i]);
}

void Captured::bind(Binding& input, const Tensor& given) noexcept {
  // A replay writes its outputs perhaps before it has read all of its inputs.
  const auto is_written = [&](const Binding& output) { return may_overlap(output.home, given); };
  const bool in_place = input.is_patchable && given.device() == input.spec.device &&
                        given.is_dense_in(input.home.layout()) && is_bindable(given.raw()) &&
                        std::none_of(outputs.begin(), outputs.end(), is_written);
  const void* address = in_place ? given.raw() : input.home.raw();
  if (address != input.address) kernels.point(input, address);
  input.bound = given;
}

void Captured::add_to_capture(StreamView capturing) {
  BURIN_CHECK(capture_of(capturing) != 0, CaptureError,
              "add_to_capture: the stream is not being captured; replay() runs the graph");
  BURIN_CHECK(
      random.empty(), CaptureError,
      "add_to_capture: the graph draws random numbers, which would be the same in every run of the caller's");
  for (Binding& input : inputs) {
    if (!input.bound.defined()) continue;
    held.push_back(input.bound.buffer());  // the caller's graph reads it whatever later replays read
    if (!reads_in_place(input)) held.push_back(copy_into_home(capturing, input).buffer());
  }
  kernels.flush_template();
  cuda::add_child_to_capture(graph.get(), capturing);
}

void Captured::replay(StreamView user, std::optional<std::span<const Tensor>> given) {
  BURIN_CHECK(user.device() == StreamView(stream.get()).device(), DeviceError,
              "replay: the graph is of {}, the stream of {}", name(StreamView(stream.get()).device()),
              name(user.device()));
  BURIN_CHECK(
      capture_of(user) == 0, CaptureError,
      "replay: the stream is being captured; add_to_capture() makes the graph a part of that capture");
  if (given) check_inputs(*given);
  ReplayTurn turn(pool, user, footprint);
  note_stream(user);
  if (given) bind_inputs(user, *given);
  turn.taken();  // before anything is queued: what fails halfway has used the pool's memory too
  for (Binding& input : inputs)
    if (input.bound.defined() && !reads_in_place(input)) copy_into_home(user, input);
  for (RandomSlot& slot : random) {
    const Philox next = slot.generator.next();
    const bool is_there = std::exchange(slot.is_known, false) && slot.on_device == next;
    if (!is_there) cuda::set_random_state(user, slot.state.raw(), next);
  }
  kernels.flush(exec.get());
  {
    const cuda::RangeScope range("burin replay");
    cuda::launch_graph(exec.get(), user);
  }
  ++replays;
  for (RandomSlot& slot : random) {
    slot.generator.take(slot.drawn);
    slot.on_device = slot.generator.next();
    slot.is_known = true;
  }
}

}  // namespace burin::detail
