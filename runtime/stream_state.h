#pragma once
// Private: what a Stream owns.

#include <burin/runtime/device.h>
#include <burin/runtime/event.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

namespace burin::detail {

struct StreamState : std::enable_shared_from_this<StreamState> {
  /// Owns `native_handle` only if `owned`.
  StreamState(Device device, void* native_handle, bool owned);
  ~StreamState();
  StreamState(const StreamState&) = delete;
  StreamState& operator=(const StreamState&) = delete;

  const Device device;
  void* const native_handle;
  const std::uint64_t id;

  void retain(std::shared_ptr<Buffer> buffer);
  /// Gives up the retained buffers whose work has finished.
  void release_finished();

 private:
  struct Retained {
    Event done;
    std::shared_ptr<Buffer> buffer;
  };
  const bool owned_;
  std::mutex mutex_;
  std::deque<Retained> retained_;  // in the order queued
};

}  // namespace burin::detail
