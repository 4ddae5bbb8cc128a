#include <burin/runtime/check.h>
#include <burin/runtime/config.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/cuda/unique_handle.h>
#include <burin/runtime/op_observer.h>
#include <burin/runtime/stream.h>
#include <burin/runtime/stream_state.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <new>
#include <utility>

namespace burin {
namespace detail {
namespace {

std::uint64_t next_stream_id() {
  // A counter only: ids must differ between all streams of the process.
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

/// Memory that the GPU may still use.
void keep_for_ever(std::shared_ptr<void> memory) noexcept {
  alignas(std::shared_ptr<void>) std::byte storage[sizeof(std::shared_ptr<void>)];
  new (storage) std::shared_ptr<void>(std::move(memory));  // never destroyed: its count stays above zero
}

bool has_early_kernels(Device device) noexcept {
  if constexpr (kHasCuda)
    if (device.is_cuda()) return cuda::has_early_kernels(device.index);
  return false;
}

/// Waits for the event or, if that fails, for the whole stream; false if both fail.
bool has_finished(const Event& done, StreamView stream) noexcept {
  [[maybe_unused]] const BesideCapture beside;
  try {
    if (done.is_recorded()) {
      done.synchronize();
      return true;
    }
  } catch (...) {
  }
  try {
    if (capture_of(stream) != 0) return false;
    if constexpr (kHasCuda) cuda::synchronize_stream(stream.device().index, stream.native_handle());
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

std::uint64_t capture_of(StreamView stream) {
  if constexpr (kHasCuda)
    if (stream.device().is_cuda()) return cuda::capture_id(stream);
  return 0;
}

StreamState::StreamState(Device device_in, void* handle, bool owned)
    : device(device_in),
      native_handle(handle),
      id(next_stream_id()),
      has_early_kernels(detail::has_early_kernels(device_in)),
      owned_(owned) {}

StreamState::~StreamState() {
  // No owner is left, so nobody else can use the list any more.
  for (const std::weak_ptr<StreamListener>& listener : listeners_)
    if (const std::shared_ptr<StreamListener> live = listener.lock()) live->stream_ending(StreamView(this));
  if constexpr (kHasCuda) {
    // What the GPU may still read must not be given back: wait for it, and keep it for ever if that fails.
    for (Retained& retained : retained_) {
      if (!has_finished(retained.done, StreamView(this))) keep_for_ever(std::move(retained.memory));
    }
    if (owned_) cuda::destroy_stream(native_handle);
  }
}

void StreamState::retain(std::shared_ptr<void> memory) noexcept {
  if (device.is_cpu()) return;
  try {
    Event done(device, EventOptions{.timing = false});
    if (capture_of(StreamView(this)) == 0) done.record(StreamView(this));
    const std::lock_guard lock(mutex_);
    retained_.push_back({std::move(done), memory});
  } catch (...) {
    try {
      StreamView(this).synchronize();
    } catch (...) {
      keep_for_ever(std::move(memory));
    }
    return;
  }
  memory.reset();
  release_finished();
}

void StreamState::release_finished() noexcept {
  for (;;) {
    std::shared_ptr<void> finished;  // given up without the lock: a deleter is the caller's code
    const std::lock_guard lock(mutex_);
    [[maybe_unused]] const BesideCapture beside;
    try {
      if (retained_.empty()) return;
      Event& done = retained_.front().done;
      if (!done.is_recorded()) {
        if (capture_of(StreamView(this)) != 0) return;
        done.record(StreamView(this));
      }
      if (!done.is_done()) return;
    } catch (...) {
      return;  // the destructor decides
    }
    finished = std::move(retained_.front().memory);
    retained_.pop_front();
  }
}

void StreamState::add_listener(std::weak_ptr<StreamListener> listener) {
  const std::lock_guard lock(mutex_);
  std::erase_if(listeners_, [](const std::weak_ptr<StreamListener>& other) { return other.expired(); });
  const bool is_known = std::any_of(listeners_.begin(), listeners_.end(), [&](const auto& other) {
    return !other.owner_before(listener) && !listener.owner_before(other);
  });
  if (!is_known) listeners_.push_back(std::move(listener));
}

StreamState::Scope StreamState::scope() const {
  const std::lock_guard lock(mutex_);
  return {scope_, scope_hash()};
}

std::size_t StreamState::push_scope(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const std::size_t outer_length = scope_.size();
  scope_.reserve(outer_length + 1 + name.size());  // all or nothing
  if (outer_length > 0) scope_ += '.';
  scope_ += name;
  hash_scope();
  return outer_length;
}

void StreamState::pop_scope(std::size_t outer_length) noexcept {
  const std::lock_guard lock(mutex_);
  if (outer_length < scope_.size()) scope_.resize(outer_length);
  hash_scope();
}

void StreamState::hash_scope() noexcept {
  scope_hash_.store(scope_.empty() ? 0 : std::hash<std::string_view>()(scope_), std::memory_order_relaxed);
}

}  // namespace detail

Device StreamView::device() const { return state_->device; }
void* StreamView::native_handle() const { return state_->native_handle; }
std::uint64_t StreamView::id() const { return state_->id; }
std::shared_ptr<detail::StreamState> StreamView::share() const { return state_->shared_from_this(); }

bool StreamView::is_idle() const {
  if constexpr (kHasCuda)
    if (device().is_cuda()) {
      if (OpObserver* observer = state_->observer()) observer->host_waits("cudaStreamQuery");
      return cuda::is_stream_idle(device().index, native_handle());
    }
  return true;
}

void StreamView::synchronize() const {
  if constexpr (kHasCuda)
    if (device().is_cuda()) {
      if (OpObserver* observer = state_->observer()) observer->host_waits("cudaStreamSynchronize");
      cuda::synchronize_stream(device().index, native_handle());
      state_->release_finished();
    }
}

void StreamView::wait(const Event& event) const {
  BURIN_CHECK(event.is_recorded(), Error, "stream.wait: the event was never recorded");
  if constexpr (kHasCuda) {
    if (device().is_cuda() && event.device().is_cuda()) {
      cuda::stream_wait_event(device().index, native_handle(), event.native_handle());
    } else {
      event.synchronize();  // one of the two sides is the host, which has no queue to wait in
    }
  }
}

void StreamView::wait(StreamView other) const {
  if (other == *this || other.device().is_cpu()) return;
  if (device().is_cpu()) return other.synchronize();
  Event queued(other.device(), {.timing = false});
  queued.record(other);
  wait(queued);
}

int StreamView::priority() const {
  if constexpr (kHasCuda)
    if (device().is_cuda()) return cuda::stream_priority(device().index, native_handle());
  return 0;
}

Stream::Stream(Device device, int priority) {
  require_device("stream", device);
  if constexpr (kHasCuda) {
    if (device.is_cuda()) {
      struct Destroy {
        void operator()(void* stream) const noexcept { cuda::destroy_stream(stream); }
      };
      UniqueHandle<void*, Destroy> handle(cuda::create_stream(device.index, priority));
      state_ = std::make_shared<detail::StreamState>(device, handle.get(), true);
      handle.release();
      return;
    }
  }
  state_ = std::make_shared<detail::StreamState>(device, nullptr, false);
}

Stream Stream::wrap(Device device, void* native_handle) {
  require_device("stream", device);
  return Stream(std::make_shared<detail::StreamState>(device, native_handle, false));
}

StreamPriorities stream_priorities(Device device) {
  require_device("stream_priorities", device);
  if constexpr (kHasCuda)
    if (device.is_cuda()) return cuda::stream_priorities(device.index);
  return {};
}

}  // namespace burin
