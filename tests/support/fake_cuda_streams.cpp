// Streams of the fake device: queues, and the order in which they run.

#include <support/fake_cuda_state.h>

#include <algorithm>

#include <fmt/format.h>

namespace burin::test {
namespace {

constexpr std::size_t kMostPending = 4096;
constexpr double kOperationMs = 0.001;

FakeStream& runner_of(FakeStream& stream) { return stream.runner ? *stream.runner : stream; }

/// The stream to run so that `stream` gets on: itself, or one that its first operation waits for.
FakeStream& unblocked(FakeStream& stream) {
  FakeStream* at = &runner_of(stream);
  while (const auto* wait = std::get_if<FakePosition>(&at->queue.front())) {
    if (wait->reached()) break;
    at = &runner_of(*wait->stream);
  }
  return *at;
}

void run_first(FakeState& state, FakeStream& stream) {
  state.clock_ms += kOperationMs;
  const auto* graph = std::get_if<std::shared_ptr<FakeGraphRun>>(&stream.queue.front());
  if (graph && state.run_node(**graph)) return;
  const FakeOperation operation = std::move(stream.queue.front());
  stream.queue.pop_front();
  ++stream.finished;
  --state.pending;
  std::shared_ptr<FakeStream> keep;  // it may be destroyed already, and this its last operation
  if (stream.queue.empty()) {
    keep = std::move(state.busy[stream.busy_index]);
    if (stream.busy_index + 1 != state.busy.size()) {
      state.busy[stream.busy_index] = std::move(state.busy.back());
      state.busy[stream.busy_index]->busy_index = stream.busy_index;
    }
    state.busy.pop_back();
  }
  if (const auto* record = std::get_if<std::shared_ptr<FakeRecord>>(&operation))
    (*record)->time_ms = state.clock_ms;
  else if (const auto* queued = std::get_if<FakeQueuedWork>(&operation))
    state.run(*queued);
}

void run_any(FakeState& state) {
  if (!state.busy.empty()) run_first(state, unblocked(*state.busy[state.random() % state.busy.size()]));
}

void append(FakeState& state, const std::shared_ptr<FakeStream>& stream, FakeOperation operation) {
  if (stream->queue.empty()) {
    stream->busy_index = state.busy.size();
    state.busy.push_back(stream);
  }
  stream->queue.push_back(std::move(operation));
  ++stream->queued;
  ++state.pending;
}

/// The legacy stream waits for the blocking ones, and they for it.
void append_implicit_waits(FakeState& state, const std::shared_ptr<FakeStream>& stream) {
  const std::shared_ptr<FakeStream>& legacy = state.legacy[static_cast<std::size_t>(stream->device)];
  if (stream->blocking && !legacy->queue.empty()) append(state, stream, state.end_of(legacy));
  if (!stream->legacy || state.blocking_streams == 0) return;
  for (const std::shared_ptr<FakeStream>& other : std::vector(state.busy))
    if (other->blocking && other->device == stream->device) append(state, stream, state.end_of(other));
}

cudaError_t destroy_stream(FakeState& state, cudaStream_t handle) {
  const std::shared_ptr<FakeStream> stream = state.find_stream(handle, "cudaStreamDestroy");
  if (!stream || stream->legacy) return cudaErrorInvalidResourceHandle;
  if (stream->capture) {
    std::erase(stream->capture->streams, stream.get());
    if (stream->capture->origin == stream.get()) {
      state.violation("cudaStreamDestroy: the stream has begun a capture and not ended it");
      state.end_capture(*std::shared_ptr(stream->capture));
    }
    stream->capture.reset();
  }
  state.blocking_streams -= stream->blocking;
  state.streams.erase(reinterpret_cast<std::uintptr_t>(handle));
  state.recycle(reinterpret_cast<std::uintptr_t>(handle));
  return cudaSuccess;  // what is queued still runs
}

cudaError_t refuse_in_capture(FakeState& state, const FakeStream& stream) {
  if (stream.capture) {
    FakeState::invalidate(*stream.capture);
    return cudaErrorStreamCaptureUnsupported;
  }
  if (const cudaError_t code = state.implicit_use(stream, true); code != cudaSuccess) return code;
  return state.unsafe_call();
}

}  // namespace

std::shared_ptr<FakeStream> FakeState::find_stream(cudaStream_t stream, const char* function) {
  if (stream == nullptr || stream == cudaStreamLegacy)
    return legacy[static_cast<std::size_t>(thread().device)];
  const auto found = streams.find(reinterpret_cast<std::uintptr_t>(stream));
  if (found != streams.end()) return found->second;
  violation(fmt::format("{}: stream {} was destroyed or never made", function, static_cast<void*>(stream)));
  return nullptr;
}

void FakeState::push(const std::shared_ptr<FakeStream>& stream, FakeOperation operation) {
  if (pending >= kMostPending) run_any(*this);
  append_implicit_waits(*this, stream);
  append(*this, stream, std::move(operation));
}

void FakeState::run_until(const FakePosition& position) {
  while (!position.reached()) {
    if (chance(4))
      run_any(*this);
    else
      run_first(*this, unblocked(*position.stream));
  }
}

void FakeState::run_some() {
  for (std::uint64_t count = random() % 4; count > 0; --count) run_any(*this);
}

void FakeState::run_all(int device) {
  for (const std::shared_ptr<FakeStream>& stream : std::vector(busy))
    if (stream->device == device) run_until(end_of(stream));
}

void add_fake_streams(cuda::CudaApi& table) {
  table.cudaDeviceGetStreamPriorityRange = [](int* least, int* greatest) {
    return fake_call("cudaDeviceGetStreamPriorityRange", [&](FakeState&, FakeThread&) {
      *least = 0;
      *greatest = -5;
      return cudaSuccess;
    });
  };
  table.cudaStreamCreateWithPriority = [](cudaStream_t* out, unsigned flags, int priority) {
    return fake_call("cudaStreamCreateWithPriority", [&](FakeState& state, FakeThread& thread) {
      if (!out || (flags & ~static_cast<unsigned>(cudaStreamNonBlocking)) != 0) return cudaErrorInvalidValue;
      auto stream = std::make_shared<FakeStream>();
      stream->device = thread.device;
      stream->priority = priority;
      stream->blocking = flags != cudaStreamNonBlocking;
      state.blocking_streams += stream->blocking;
      const std::uintptr_t handle = state.new_handle();
      state.streams[handle] = std::move(stream);
      *out = reinterpret_cast<cudaStream_t>(handle);
      return cudaSuccess;
    });
  };
  table.cudaStreamGetPriority = [](cudaStream_t handle, int* priority) {
    return fake_call("cudaStreamGetPriority", [&](FakeState& state, FakeThread&) {
      const auto stream = state.find_stream(handle, "cudaStreamGetPriority");
      if (!stream) return cudaErrorInvalidResourceHandle;
      *priority = stream->priority;
      return cudaSuccess;
    });
  };
  table.cudaStreamDestroy = [](cudaStream_t stream) {
    return fake_call(
        "cudaStreamDestroy", [&](FakeState& state, FakeThread&) { return destroy_stream(state, stream); },
        FakeCall::release);
  };
  table.cudaStreamQuery = [](cudaStream_t handle) {
    return fake_call("cudaStreamQuery", [&](FakeState& state, FakeThread&) {
      const auto stream = state.find_stream(handle, "cudaStreamQuery");
      if (!stream) return cudaErrorInvalidResourceHandle;
      if (const cudaError_t code = refuse_in_capture(state, *stream); code != cudaSuccess) return code;
      state.run_some();
      if (state.lost != cudaSuccess) return state.lost;
      return stream->queue.empty() ? cudaSuccess : cudaErrorNotReady;
    });
  };
  table.cudaStreamSynchronize = [](cudaStream_t handle) {
    return fake_call("cudaStreamSynchronize", [&](FakeState& state, FakeThread&) {
      const auto stream = state.find_stream(handle, "cudaStreamSynchronize");
      if (!stream) return cudaErrorInvalidResourceHandle;
      if (const cudaError_t code = refuse_in_capture(state, *stream); code != cudaSuccess) return code;
      state.run_until(state.end_of(stream));
      return state.lost;
    });
  };
  table.cudaDeviceSynchronize = [] {
    return fake_call("cudaDeviceSynchronize", [&](FakeState& state, FakeThread& thread) {
      bool refused = false;
      for (const std::shared_ptr<FakeCapture>& capture : state.captures) {
        if (capture->origin->device != thread.device) continue;
        FakeState::invalidate(*capture);
        refused = true;
      }
      if (refused) return cudaErrorStreamCaptureUnsupported;
      if (const cudaError_t code = state.unsafe_call(); code != cudaSuccess) return code;
      state.run_all(thread.device);
      return state.lost;
    });
  };
}

}  // namespace burin::test
