#pragma once
// Private: what a Stream owns.

#include <burin/runtime/config.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/device.h>
#include <burin/runtime/event.h>
#include <burin/runtime/stream.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace burin {
class OpObserver;
}

namespace burin::detail {

/// In force where a pool or a stream calls the driver or waits on its own account: that is no part of any
/// capture.
struct NothingToGuard {};
using BesideCapture = std::conditional_t<kHasCuda, cuda::BesideCapture, NothingToGuard>;

/// Of the capture that records the stream now (see cuda::capture_id); 0: none, or a stream of the CPU.
std::uint64_t capture_of(StreamView stream);

/// Wants to know when a stream ends.
struct StreamListener {
  virtual ~StreamListener() = default;
  /// The last owner of `stream` is gone; its native handle is still valid, but nobody can share() it any
  /// more. Called with no lock held, also for a caller's stream.
  virtual void stream_ending(StreamView stream) noexcept = 0;
};

struct StreamState : std::enable_shared_from_this<StreamState> {
  /// Owns `native_handle` only if `owned`.
  StreamState(Device device, void* native_handle, bool owned);
  ~StreamState();
  StreamState(const StreamState&) = delete;
  StreamState& operator=(const StreamState&) = delete;

  const Device device;
  void* const native_handle;
  const std::uint64_t id;
  const bool has_early_kernels;  // see cuda::LaunchShape::starts_early

  /// Keeps `memory` alive until everything queued so far has finished, for ever if that cannot be known.
  /// It is given up by the first call of retain, release_finished or the destructor that finds it finished.
  void retain(std::shared_ptr<void> memory) noexcept;
  void release_finished() noexcept;

  /// Called once when the stream ends, if it lives then; adding it again changes nothing.
  void add_listener(std::weak_ptr<StreamListener> listener);

  /// Who is told of the calls on this stream; null: nobody. See ObserverScope.
  OpObserver* observer() const noexcept { return observer_.load(std::memory_order_acquire); }
  OpObserver* exchange_observer(OpObserver* observer) noexcept {
    return observer_.exchange(observer, std::memory_order_acq_rel);
  }

  struct Scope {
    std::string path;  // of the name scopes that are open: "resnet.layer1.0.conv1"
    std::uint64_t hash = 0;
  };
  Scope scope() const;
  /// A hash of the path, 0 for the empty one, so that a reader who knows it need not copy it.
  std::uint64_t scope_hash() const noexcept { return scope_hash_.load(std::memory_order_relaxed); }
  /// Returns the length of the path before, for pop_scope.
  std::size_t push_scope(std::string_view name);
  void pop_scope(std::size_t outer_length) noexcept;

 private:
  void hash_scope() noexcept;
  struct Retained {
    Event done;  // not recorded yet if the stream was being captured
    std::shared_ptr<void> memory;
  };
  const bool owned_;
  std::atomic<OpObserver*> observer_{nullptr};
  mutable std::mutex mutex_;       // of all below
  std::deque<Retained> retained_;  // in the order queued
  std::vector<std::weak_ptr<StreamListener>> listeners_;
  std::string scope_;
  std::atomic<std::uint64_t> scope_hash_{0};  // written with the path
};

}  // namespace burin::detail
