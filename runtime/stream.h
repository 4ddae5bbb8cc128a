#pragma once

#include <burin/runtime/device.h>
#include <burin/runtime/export.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace burin {

class Buffer;
class Event;
namespace detail {
struct StreamState;
}

/// A non-owning reference to a stream: what functions take. Valid while the Stream, or any buffer allocated
/// on it, lives.
class BURIN_API StreamView {
 public:
  StreamView() = default;  // refers to nothing; only comparison and assignment are allowed
  explicit StreamView(detail::StreamState* state) : state_(state) {}

  Device device() const;
  /// The cudaStream_t, or nullptr on the CPU.
  void* native_handle() const;
  /// Unique in this process and never used again, unlike the handle.
  std::uint64_t id() const;
  /// True if everything queued so far has finished. Throws CudaError if it failed.
  bool is_idle() const;
  /// Blocks the calling thread until everything queued so far has finished. Throws CudaError if it failed.
  void synchronize() const;
  /// Work queued on this stream after the call runs after the work that `event` recorded. Does not block the
  /// host, unless this stream or the event is of the CPU, which has no queue to wait in. Throws Error if the
  /// event was never recorded.
  void wait(const Event& event) const;
  /// Keeps `buffer` alive until everything queued so far has finished; gives it up at a later synchronize()
  /// or retain(). A buffer that was allocated on this stream is in its order already, and is not kept.
  void retain(std::shared_ptr<Buffer> buffer) const;
  /// Shares ownership of the stream.
  std::shared_ptr<detail::StreamState> share() const;

  bool operator==(const StreamView&) const = default;

 private:
  detail::StreamState* state_ = nullptr;
};

/// An ordered queue of work on a device. A CUDA stream is always non-blocking (it does not order itself with
/// the legacy default stream). On the CPU work is done at the call, so the queue is always empty. Buffers
/// keep the streams they were allocated on alive, so a Stream may be destroyed in any order; destruction
/// never throws, and waits only for work that retained buffers serve.
class BURIN_API Stream {
 public:
  /// Throws DeviceError if the device does not exist. `priority`: lower runs first; 0 is the default, the
  /// driver clamps.
  explicit Stream(Device device, int priority = 0);
  /// Uses a caller's cudaStream_t, which must outlive the Stream and every buffer allocated on it.
  static Stream wrap(Device device, void* native_handle);

  Stream(Stream&&) noexcept = default;
  Stream& operator=(Stream&&) noexcept = default;

  StreamView view() const { return StreamView(state_.get()); }
  operator StreamView() const { return view(); }  // an owner serves as its view
  void synchronize() const { view().synchronize(); }
  void wait(const Event& event) const { view().wait(event); }

 private:
  explicit Stream(std::shared_ptr<detail::StreamState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::StreamState> state_;
};

/// Waits until everything queued on the stream has finished. Throws CudaError.
inline void synchronize(StreamView stream) { stream.synchronize(); }

}  // namespace burin
