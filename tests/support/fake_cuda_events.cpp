// Events of the fake device.

#include <support/fake_cuda_state.h>

#include <algorithm>

#include <fmt/format.h>

namespace burin::test {
namespace {

bool is_over(const FakeCapture& capture) { return capture.invalid || capture.ended; }

/// For calls that wait for or ask about an event: the refusal, if its last record was in a capture.
cudaError_t refuse_captured(FakeState& state, const FakeEvent& event) {
  if (!event.capture) return state.unsafe_call();
  if (is_over(*event.capture)) return cudaErrorInvalidValue;
  FakeState::invalidate(*event.capture);
  return cudaErrorCapturedEvent;
}

cudaError_t record(FakeState& state, FakeEvent& event, const std::shared_ptr<FakeStream>& stream) {
  if (const cudaError_t code = state.implicit_use(*stream, true); code != cudaSuccess) return code;
  if (event.device != stream->device) return cudaErrorInvalidResourceHandle;
  if (stream->capture) {
    if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    event.record.reset();
    event.capture = stream->capture;
    event.tips = stream->tips;
    return cudaSuccess;
  }
  event.capture.reset();
  event.tips.clear();
  event.record = std::make_shared<FakeRecord>();
  state.push(stream, event.record);
  event.record->position = state.end_of(stream);
  return cudaSuccess;
}

/// In a capture, a node that records the event at each launch of the graph.
cudaError_t record_external(FakeState& state, FakeEvent& event, const std::shared_ptr<FakeStream>& stream) {
  if (!stream->capture) return cudaErrorIllegalState;
  if (event.device != stream->device) return cudaErrorInvalidResourceHandle;
  FakeWork work;
  work.kind = FakeWork::Kind::record;
  work.event = event.weak_from_this();
  return state.submit(stream, std::move(work));
}

cudaError_t wait_in_capture(FakeStream& stream, const FakeEvent& event) {
  FakeCapture& capture = *stream.capture;
  if (event.capture == stream.capture) {
    for (FakeNode* tip : event.tips)
      if (std::find(stream.tips.begin(), stream.tips.end(), tip) == stream.tips.end())
        stream.tips.push_back(tip);
    return cudaSuccess;
  }
  FakeState::invalidate(capture);
  if (!event.capture) return cudaErrorStreamCaptureIsolation;
  if (is_over(*event.capture)) return cudaErrorInvalidValue;
  FakeState::invalidate(*event.capture);
  return cudaErrorStreamCaptureMerge;
}

cudaError_t wait(FakeState& state, const std::shared_ptr<FakeStream>& stream, const FakeEvent& event) {
  if (const cudaError_t code = state.implicit_use(*stream, true); code != cudaSuccess) return code;
  if (stream->capture && stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (!event.record && !event.capture) return cudaSuccess;
  if (stream->capture) return wait_in_capture(*stream, event);
  if (!event.capture) {
    if (!event.record->position.reached()) state.push(stream, event.record->position);
    return cudaSuccess;
  }
  if (is_over(*event.capture)) return cudaErrorInvalidValue;
  if (stream->legacy) {
    FakeState::invalidate(*event.capture);
    return cudaErrorStreamCaptureImplicit;
  }
  stream->capture = event.capture;
  stream->tips = event.tips;
  event.capture->streams.push_back(stream.get());
  return cudaSuccess;
}

cudaError_t elapsed(const FakeEvent& first, const FakeEvent& later, float* milliseconds) {
  if (first.capture || later.capture) return cudaErrorCapturedEvent;
  if (!first.timing || !later.timing || !first.record || !later.record || first.device != later.device)
    return cudaErrorInvalidResourceHandle;
  if (!first.record->position.reached() || !later.record->position.reached()) return cudaErrorNotReady;
  *milliseconds = static_cast<float>(later.record->time_ms - first.record->time_ms);
  return cudaSuccess;
}

}  // namespace

FakeEvent* FakeState::find_event(cudaEvent_t event, const char* function) {
  const auto found = events.find(reinterpret_cast<std::uintptr_t>(event));
  if (found != events.end()) return found->second.get();
  violation(fmt::format("{}: event {} was destroyed or never made", function, static_cast<void*>(event)));
  return nullptr;
}

void add_fake_events(cuda::CudaApi& table) {
  table.cudaEventCreateWithFlags = [](cudaEvent_t* out, unsigned flags) {
    return fake_call("cudaEventCreateWithFlags", [&](FakeState& state, FakeThread& thread) {
      if (!out || (flags & ~static_cast<unsigned>(cudaEventBlockingSync | cudaEventDisableTiming)) != 0)
        return cudaErrorInvalidValue;
      auto event = std::make_shared<FakeEvent>();
      event->device = thread.device;
      event->timing = (flags & cudaEventDisableTiming) == 0;
      const std::uintptr_t handle = state.new_handle();
      state.events[handle] = std::move(event);
      *out = reinterpret_cast<cudaEvent_t>(handle);
      return cudaSuccess;
    });
  };
  table.cudaEventDestroy = [](cudaEvent_t event) {
    return fake_call(
        "cudaEventDestroy",
        [&](FakeState& state, FakeThread&) {
          if (!state.find_event(event, "cudaEventDestroy")) return cudaErrorInvalidResourceHandle;
          state.events.erase(reinterpret_cast<std::uintptr_t>(event));
          state.recycle(reinterpret_cast<std::uintptr_t>(event));
          return cudaSuccess;
        },
        FakeCall::release);
  };
  table.cudaEventRecord = [](cudaEvent_t event_handle, cudaStream_t stream_handle) {
    return fake_call("cudaEventRecord", [&](FakeState& state, FakeThread&) {
      FakeEvent* event = state.find_event(event_handle, "cudaEventRecord");
      const auto stream = state.find_stream(stream_handle, "cudaEventRecord");
      return event && stream ? record(state, *event, stream) : cudaErrorInvalidResourceHandle;
    });
  };
  table.cudaEventRecordWithFlags = [](cudaEvent_t event_handle, cudaStream_t stream_handle, unsigned flags) {
    return fake_call("cudaEventRecordWithFlags", [&](FakeState& state, FakeThread&) {
      FakeEvent* event = state.find_event(event_handle, "cudaEventRecordWithFlags");
      const auto stream = state.find_stream(stream_handle, "cudaEventRecordWithFlags");
      if (!event || !stream) return cudaErrorInvalidResourceHandle;
      if (flags == cudaEventRecordDefault) return record(state, *event, stream);
      return flags == cudaEventRecordExternal ? record_external(state, *event, stream)
                                              : cudaErrorInvalidValue;
    });
  };
  table.cudaStreamWaitEvent = [](cudaStream_t stream_handle, cudaEvent_t event_handle, unsigned flags) {
    return fake_call("cudaStreamWaitEvent", [&](FakeState& state, FakeThread&) {
      const FakeEvent* event = state.find_event(event_handle, "cudaStreamWaitEvent");
      const auto stream = state.find_stream(stream_handle, "cudaStreamWaitEvent");
      if (!event || !stream) return cudaErrorInvalidResourceHandle;
      return flags == cudaEventWaitDefault ? wait(state, stream, *event) : cudaErrorInvalidValue;
    });
  };
  table.cudaEventQuery = [](cudaEvent_t handle) {
    return fake_call("cudaEventQuery", [&](FakeState& state, FakeThread&) {
      const FakeEvent* event = state.find_event(handle, "cudaEventQuery");
      if (!event) return cudaErrorInvalidResourceHandle;
      if (const cudaError_t code = refuse_captured(state, *event); code != cudaSuccess) return code;
      state.run_some();
      if (state.lost != cudaSuccess) return state.lost;
      return !event->record || event->record->position.reached() ? cudaSuccess : cudaErrorNotReady;
    });
  };
  table.cudaEventSynchronize = [](cudaEvent_t handle) {
    return fake_call("cudaEventSynchronize", [&](FakeState& state, FakeThread&) {
      const FakeEvent* event = state.find_event(handle, "cudaEventSynchronize");
      if (!event) return cudaErrorInvalidResourceHandle;
      if (const cudaError_t code = refuse_captured(state, *event); code != cudaSuccess) return code;
      if (event->record) state.run_until(event->record->position);
      return state.lost;
    });
  };
  table.cudaEventElapsedTime = [](float* milliseconds, cudaEvent_t first, cudaEvent_t later) {
    return fake_call("cudaEventElapsedTime", [&](FakeState& state, FakeThread&) {
      const FakeEvent* from = state.find_event(first, "cudaEventElapsedTime");
      const FakeEvent* to = state.find_event(later, "cudaEventElapsedTime");
      return from && to ? elapsed(*from, *to, milliseconds) : cudaErrorInvalidResourceHandle;
    });
  };
}

}  // namespace burin::test
