#pragma once

#include <burin/runtime/export.h>
#include <burin/runtime/stream.h>

#include <memory>

namespace burin {

struct EventOptions {
  bool timing = true;  // without it recording is cheaper, and elapsed_ms throws
};

/// A point in a stream. On the CPU an event is finished as soon as it is recorded, and times by the steady
/// clock.
class BURIN_API Event {
 public:
  /// Throws DeviceError if the device cannot be used.
  explicit Event(Device device, EventOptions options = {});
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;

  Device device() const;
  /// Marks the work queued on the stream so far; recording again moves the event. Throws DeviceError if the
  /// stream is of another device.
  void record(StreamView stream);
  bool is_recorded() const;
  /// True if the recorded work has finished. Throws Error if the event was never recorded.
  bool is_done() const;
  /// Blocks the calling thread until the recorded work has finished. Throws Error if the event was never
  /// recorded.
  void synchronize() const;
  /// Milliseconds from this event to `later`, negative if `later` came first; waits for both. Throws Error if
  /// either was never recorded or has no timing, DeviceError if they are of two devices.
  double elapsed_ms(const Event& later) const;
  /// The cudaEvent_t, or nullptr on the CPU.
  void* native_handle() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace burin
