#pragma once

#include <burin/runtime/device.h>
#include <burin/runtime/export.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace burin {

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
  /// The same for everything queued on `other` so far.
  void wait(StreamView other) const;
  /// As CUDA has it, after clamping: lower runs first. 0 on the CPU.
  int priority() const;
  /// Shares ownership of the stream.
  std::shared_ptr<detail::StreamState> share() const;
  detail::StreamState& state() const { return *state_; }  // for Burin itself

  bool operator==(const StreamView&) const = default;

 private:
  detail::StreamState* state_ = nullptr;
};

/// An ordered queue of work on a device. A CUDA stream is always non-blocking (it does not order itself with
/// the legacy default stream). On the CPU work is done at the call, so the queue is always empty. Buffers
/// keep the streams they were allocated on, or that use them, alive, so a Stream may be destroyed in any
/// order; destruction never throws, and waits only for work that uses memory of the caller's
/// (Tensor::from_blob) which is waiting to be given back.
///
/// Operators run on the stream of their Context. What PyTorch writes as `with torch.cuda.stream(side):` is a
/// second context, whose scope is the block:
///
///     Context side(device, {.memory = ctx.memory(), .stream = Stream(device)});
///     side.stream().wait(ctx.stream());  // x was made there
///     Tensor y = relu(side, x);
///     x.record_use(side.stream());       // so x may be released before y is finished
///     ctx.stream().wait(side.stream());  // from here on ctx may use y
class BURIN_API Stream {
 public:
  /// Throws DeviceError if the device does not exist. `priority`: lower runs first; 0 is the default, the
  /// driver clamps.
  explicit Stream(Device device, int priority = 0);
  /// Uses a caller's cudaStream_t, which must outlive the Stream and every buffer allocated on it or used
  /// by it. Throws DeviceError if the device does not exist.
  static Stream wrap(Device device, void* native_handle);

  Stream(Stream&&) noexcept = default;
  Stream& operator=(Stream&&) noexcept = default;

  StreamView view() const { return StreamView(state_.get()); }
  operator StreamView() const { return view(); }  // an owner serves as its view
  void synchronize() const { view().synchronize(); }
  void wait(const Event& event) const { view().wait(event); }
  void wait(StreamView other) const { view().wait(other); }

 private:
  explicit Stream(std::shared_ptr<detail::StreamState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::StreamState> state_;
};

/// The priorities that streams of a device can have: lower runs first. Both are 0 on the CPU.
struct StreamPriorities {
  int least = 0;
  int greatest = 0;  // <= least
};
/// Throws DeviceError if the device does not exist.
BURIN_API StreamPriorities stream_priorities(Device device);

/// Waits until everything queued on the stream has finished. Throws CudaError.
inline void synchronize(StreamView stream) { stream.synchronize(); }

}  // namespace burin
