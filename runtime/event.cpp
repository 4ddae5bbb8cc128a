#include <burin/runtime/check.h>
#include <burin/runtime/config.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/event.h>

#include <chrono>
#include <utility>

namespace burin {

struct Event::State {
  Device device;
  bool timing;
  bool recorded = false;
  void* native = nullptr;                           // CUDA only
  std::chrono::steady_clock::time_point time = {};  // CPU only

  ~State() {
    if constexpr (kHasCuda)
      if (native) cuda::destroy_event(native);
  }
  void require_recorded(const char* call) const {
    BURIN_CHECK(recorded, Error, "event.{}: the event was never recorded", call);
  }
};

Event::Event(Device device, EventOptions options) : state_(new State{device, options.timing}) {
  require_device("event", device);
  if constexpr (kHasCuda)
    if (device.is_cuda()) state_->native = cuda::create_event(device.index, options.timing);
}

Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

Device Event::device() const { return state_->device; }
void* Event::native_handle() const { return state_->native; }
bool Event::is_recorded() const { return state_->recorded; }

void Event::record(StreamView stream) {
  BURIN_CHECK(stream.device() == state_->device, DeviceError,
              "event.record: the event is of {}, the stream of {}", name(state_->device),
              name(stream.device()));
  if constexpr (kHasCuda)
    if (state_->native) cuda::record_event(state_->device.index, state_->native, stream.native_handle());
  if (!state_->native) state_->time = std::chrono::steady_clock::now();
  state_->recorded = true;
}

bool Event::is_done() const {
  state_->require_recorded("is_done");
  if constexpr (kHasCuda)
    if (state_->native) return cuda::is_event_done(state_->device.index, state_->native);
  return true;
}

void Event::synchronize() const {
  state_->require_recorded("synchronize");
  if constexpr (kHasCuda)
    if (state_->native) cuda::synchronize_event(state_->device.index, state_->native);
}

double Event::elapsed_ms(const Event& later) const {
  state_->require_recorded("elapsed_ms");
  later.state_->require_recorded("elapsed_ms");
  BURIN_CHECK(state_->timing && later.state_->timing, Error,
              "event.elapsed_ms: an event was made without timing");
  BURIN_CHECK(state_->device == later.state_->device, DeviceError,
              "event.elapsed_ms: the events are of {} and {}", name(state_->device),
              name(later.state_->device));
  if constexpr (kHasCuda) {
    if (state_->native) {
      synchronize();
      later.synchronize();
      return cuda::event_elapsed_ms(state_->device.index, state_->native, later.state_->native);
    }
  }
  return std::chrono::duration<double, std::milli>(later.state_->time - state_->time).count();
}

}  // namespace burin
