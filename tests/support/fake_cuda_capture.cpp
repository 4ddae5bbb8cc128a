// Captures of the fake device, and the calls that they forbid.

#include <support/fake_cuda_state.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

namespace burin::test {
namespace {

/// Whether every node that must be joined comes before something in `tips`, or is there.
bool all_joined(const FakeGraph& graph, const std::vector<FakeNode*>& tips) {
  std::unordered_set<const FakeNode*> joined(tips.begin(), tips.end());
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (!joined.contains(&*node) && !node->may_stay_open) return false;
    joined.insert(node->dependencies.begin(), node->dependencies.end());
  }
  return true;
}

cudaError_t begin(FakeState& state, FakeStream& stream, cudaStreamCaptureMode mode) {
  if (stream.legacy) return cudaErrorStreamCaptureUnsupported;
  if (stream.capture) return cudaErrorIllegalState;
  auto capture = std::make_shared<FakeCapture>();
  capture->id = state.next_capture++;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = &stream;
  capture->graph = std::make_shared<FakeGraph>();
  capture->streams = {&stream};
  stream.capture = capture;
  stream.tips.clear();
  state.captures.push_back(std::move(capture));
  return cudaSuccess;
}

cudaError_t end(FakeState& state, FakeStream& stream, cudaGraph_t* graph) {
  const std::shared_ptr<FakeCapture> capture = stream.capture;
  if (!capture) return cudaErrorIllegalState;
  if (capture->origin != &stream) {
    FakeState::invalidate(*capture);
    return cudaErrorStreamCaptureUnmatched;
  }
  const bool joined = all_joined(*capture->graph, stream.tips);
  state.end_capture(*capture);
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  *graph = handle_of(capture->graph.get());
  state.graphs[*graph] = capture->graph;
  return cudaSuccess;
}

cudaError_t update_dependencies(FakeState& state, FakeStream& stream, const cudaGraphNode_t* nodes,
                                std::size_t count, unsigned flags) {
  if (!stream.capture) return cudaErrorIllegalState;
  if (stream.capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (flags > cudaStreamSetCaptureDependencies || (count > 0 && !nodes)) return cudaErrorInvalidValue;
  std::vector<FakeNode*> tips;
  if (flags == cudaStreamAddCaptureDependencies) tips = stream.tips;
  for (std::size_t i = 0; i < count; ++i) {
    FakeNode* node = state.find_node(nodes[i], "cudaStreamUpdateCaptureDependencies");
    if (!node) return cudaErrorInvalidValue;
    if (std::find(tips.begin(), tips.end(), node) == tips.end()) tips.push_back(node);
  }
  for (FakeNode* node : stream.tips) node->may_stay_open = true;
  stream.tips = std::move(tips);
  return cudaSuccess;
}

}  // namespace

void FakeState::capture_node(FakeStream& stream, FakeWork work) {
  stream.tips = {&add_node(*stream.capture->graph, std::move(work), std::move(stream.tips))};
}

cudaError_t FakeState::unsafe_call() {
  const cudaStreamCaptureMode mode = thread().mode;
  bool refused = false;
  for (const std::shared_ptr<FakeCapture>& capture : captures) {
    if (mode == cudaStreamCaptureModeRelaxed || capture->mode == cudaStreamCaptureModeRelaxed) continue;
    const bool everywhere =
        mode == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    if (!everywhere && capture->thread != std::this_thread::get_id()) continue;
    invalidate(*capture);
    refused = true;
  }
  return refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t FakeState::implicit_use(const FakeStream& stream, bool invalidates) {
  if (!stream.legacy) return cudaSuccess;
  cudaError_t code = cudaSuccess;
  for (const std::shared_ptr<FakeCapture>& capture : captures) {
    for (const FakeStream* capturing : capture->streams) {
      if (!capturing->blocking || capturing->device != stream.device) continue;
      if (invalidates) invalidate(*capture);
      code = cudaErrorStreamCaptureImplicit;
    }
  }
  return code;
}

void FakeState::end_capture(FakeCapture& capture) {
  capture.ended = true;
  for (FakeStream* stream : capture.streams) {
    stream->tips.clear();
    stream->tip_handles.clear();
    if (stream != capture.origin) stream->capture.reset();
  }
  std::erase_if(captures, [&](const auto& other) { return other.get() == &capture; });
  capture.origin->capture.reset();
}

void add_fake_capture(cuda::CudaApi& table) {
  table.cudaStreamBeginCapture = [](cudaStream_t handle, cudaStreamCaptureMode mode) {
    return fake_call("cudaStreamBeginCapture", [&](FakeState& state, FakeThread&) {
      const auto stream = state.find_stream(handle, "cudaStreamBeginCapture");
      return stream ? begin(state, *stream, mode) : cudaErrorInvalidResourceHandle;
    });
  };
  table.cudaStreamEndCapture = [](cudaStream_t handle, cudaGraph_t* graph) {
    *graph = nullptr;
    const cudaError_t code = fake_call(
        "cudaStreamEndCapture",
        [&](FakeState& state, FakeThread&) {
          const auto stream = state.find_stream(handle, "cudaStreamEndCapture");
          return stream ? end(state, *stream, graph) : cudaErrorInvalidResourceHandle;
        },
        FakeCall::release);
    if (code == cudaSuccess) return code;
    FakeState& state = *FakeState::in_force();
    const std::lock_guard lock(state.mutex);
    state.graphs.erase(std::exchange(*graph, nullptr));  // of a call that was to fail
    return code;
  };
  table.cudaStreamGetCaptureInfo =
      [](cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph,
         const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges, std::size_t* count) {
        return fake_call("cudaStreamGetCaptureInfo", [&](FakeState& state, FakeThread&) {
          const auto stream = state.find_stream(handle, "cudaStreamGetCaptureInfo");
          if (!stream) return cudaErrorInvalidResourceHandle;
          if (const cudaError_t code = state.implicit_use(*stream, false); code != cudaSuccess) return code;
          const std::shared_ptr<FakeCapture>& capture = stream->capture;
          *status = !capture           ? cudaStreamCaptureStatusNone
                    : capture->invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
          if (*status != cudaStreamCaptureStatusActive) return cudaSuccess;
          stream->tip_handles.clear();
          for (FakeNode* tip : stream->tips) stream->tip_handles.push_back(handle_of(tip));
          if (id) *id = capture->id;
          if (graph) *graph = handle_of(capture->graph.get());
          if (dependencies) *dependencies = stream->tip_handles.data();
          if (edges) *edges = nullptr;
          if (count) *count = stream->tip_handles.size();
          return cudaSuccess;
        });
      };
  table.cudaStreamUpdateCaptureDependencies = [](cudaStream_t handle, cudaGraphNode_t* nodes,
                                                 const cudaGraphEdgeData*, std::size_t count,
                                                 unsigned flags) {
    return fake_call("cudaStreamUpdateCaptureDependencies", [&](FakeState& state, FakeThread&) {
      const auto stream = state.find_stream(handle, "cudaStreamUpdateCaptureDependencies");
      return stream ? update_dependencies(state, *stream, nodes, count, flags)
                    : cudaErrorInvalidResourceHandle;
    });
  };
  table.cudaThreadExchangeStreamCaptureMode = [](cudaStreamCaptureMode* mode) {
    return fake_call("cudaThreadExchangeStreamCaptureMode", [&](FakeState&, FakeThread& thread) {
      std::swap(*mode, thread.mode);
      return cudaSuccess;
    });
  };
}

}  // namespace burin::test
