// Executable graphs of the fake device: instances, updates and launches.

#include <support/fake_cuda_state.h>

#include <algorithm>

#include <fmt/format.h>

namespace burin::test {
namespace {

FakeExec* find_exec(FakeState& state, cudaGraphExec_t exec, const char* function) {
  const auto found = state.execs.find(reinterpret_cast<std::uintptr_t>(exec));
  if (found != state.execs.end()) return &found->second;
  state.violation(
      fmt::format("{}: executable graph {} was destroyed or never made", function, static_cast<void*>(exec)));
  return nullptr;
}

cudaError_t instantiate(FakeState& state, cudaGraphExec_t* out, cudaGraph_t handle,
                        unsigned long long flags) {
  if (const cudaError_t code = state.unsafe_call(); code != cudaSuccess) return code;
  const auto graph = state.find_graph(handle, "cudaGraphInstantiate");
  constexpr unsigned long long kKnown =
      cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUseNodePriority;
  if (!graph || !out || (flags & ~kKnown) != 0) return cudaErrorInvalidValue;
  const std::uintptr_t exec = state.new_handle();
  state.execs[exec].graph = state.copy_graph(*graph);
  *out = reinterpret_cast<cudaGraphExec_t>(exec);
  return cudaSuccess;
}

cudaError_t set_kernel(FakeState& state, FakeExec& exec, const FakeNode& source,
                       const cudaKernelNodeParams& given) {
  std::deque<FakeNode>& nodes = exec.graph->nodes;
  const auto node = std::find_if(nodes.begin(), nodes.end(),
                                 [&](const FakeNode& copy) { return copy.origin == source.id; });
  return node == nodes.end() ? cudaErrorInvalidValue : state.set_kernel(*node, given);
}

using Steps = std::vector<FakeGraphRun::Step>;

std::size_t append(Steps& steps, FakeQueuedWork queued, const std::vector<std::size_t>& after) {
  for (const std::size_t before : after) steps[before].followers.push_back(steps.size());
  steps.push_back({.queued = std::move(queued), .followers = {}, .waits = after.size(), .record = nullptr});
  return steps.size() - 1;
}

/// Appends the nodes of a graph, those without dependencies after `roots`.
void append(Steps& steps, const FakeGraph& graph, const std::vector<std::size_t>& roots) {
  std::unordered_map<const FakeNode*, std::size_t> ends;
  for (const FakeNode& node : graph.nodes) {
    std::vector<std::size_t> after = roots;
    if (!node.dependencies.empty()) after.clear();
    for (const FakeNode* dependency : node.dependencies) after.push_back(ends.at(dependency));
    if (node.work->child) {
      const std::size_t begin = steps.size();
      append(steps, *node.work->child, after);
      for (std::size_t step = begin; step < steps.size(); ++step) after.push_back(step);
      ends[&node] = append(steps, FakeQueuedWork{}, after);
    } else {
      ends[&node] = append(steps, FakeQueuedWork{node.work, node.serial}, after);
    }
  }
}

/// Makes the events that the run records wait for it. False if one is gone.
bool attach_events(FakeState& state, FakeGraphRun& run, const std::shared_ptr<FakeStream>& stream) {
  for (FakeGraphRun::Step& step : run.steps) {
    if (!step.queued.work || step.queued.work->kind != FakeWork::Kind::record) continue;
    const std::shared_ptr<FakeEvent> event = step.queued.work->event.lock();
    if (!event) {
      state.violation("cudaGraphLaunch: an event that the graph records was destroyed");
      return false;
    }
    step.record = std::make_shared<FakeRecord>();
    step.record->position = {std::make_shared<FakeStream>(), 1};
    step.record->position.stream->runner = stream;
    event->record = step.record;
    event->capture.reset();
    event->tips.clear();
  }
  return true;
}

void wait_for_last(FakeState& state, const FakeExec& exec, const std::shared_ptr<FakeStream>& stream) {
  if (exec.last.stream && exec.last.stream != stream && !exec.last.reached()) state.push(stream, exec.last);
}

cudaError_t launch(FakeState& state, FakeExec& exec, const std::shared_ptr<FakeStream>& stream) {
  if (const cudaError_t code = state.refuse_work(*stream); code != cudaSuccess) return code;
  if (stream->capture) {
    FakeState::invalidate(*stream->capture);
    return cudaErrorStreamCaptureUnsupported;
  }
  const auto run = std::make_shared<FakeGraphRun>();
  append(run->steps, *exec.graph, {});
  for (std::size_t step = 0; step < run->steps.size(); ++step)
    if (run->steps[step].waits == 0) run->ready.push_back(step);
  if (!attach_events(state, *run, stream)) return cudaErrorInvalidResourceHandle;
  wait_for_last(state, exec, stream);
  state.push(stream, run);
  exec.last = state.end_of(stream);
  return cudaSuccess;
}

cudaError_t upload(FakeState& state, const FakeExec& exec, const std::shared_ptr<FakeStream>& stream) {
  if (stream->capture) {
    FakeState::invalidate(*stream->capture);
    return cudaErrorStreamCaptureUnsupported;
  }
  if (const cudaError_t code = state.refuse_work(*stream); code != cudaSuccess) return code;
  wait_for_last(state, exec, stream);
  return cudaSuccess;
}

}  // namespace

cudaError_t FakeState::set_kernel(FakeNode& node, const cudaKernelNodeParams& given) {
  if (node.work->kind != FakeWork::Kind::kernel || !given.func || !given.kernelParams)
    return cudaErrorInvalidValue;
  cudaLaunchConfig_t config = {};
  config.gridDim = given.gridDim;
  config.blockDim = given.blockDim;
  config.dynamicSmemBytes = given.sharedMemBytes;
  FakeWork work;
  const cudaError_t code = make_kernel_work(given.func, config, given.kernelParams, work);
  if (code != cudaSuccess) return code;
  node.work = std::make_shared<const FakeWork>(std::move(work));
  node.serial = serial;
  return cudaSuccess;
}

bool FakeState::run_node(FakeGraphRun& graph) {
  if (graph.ready.empty()) return false;
  std::swap(graph.ready[random() % graph.ready.size()], graph.ready.back());
  const FakeGraphRun::Step& step = graph.steps[graph.ready.back()];
  graph.ready.pop_back();
  if (step.queued.work) run(step.queued);
  if (step.record) {
    FakeStream& reached = *step.record->position.stream;
    step.record->time_ms = clock_ms;
    reached.finished = 1;
    reached.runner.reset();
  }
  for (const std::size_t follower : step.followers)
    if (--graph.steps[follower].waits == 0) graph.ready.push_back(follower);
  return !graph.ready.empty();
}

void add_fake_graph_exec(cuda::CudaApi& table) {
  table.cudaGraphInstantiate = [](cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long flags) {
    return fake_call("cudaGraphInstantiate",
                     [&](FakeState& state, FakeThread&) { return instantiate(state, out, graph, flags); });
  };
  table.cudaGraphExecDestroy = [](cudaGraphExec_t exec) {
    return fake_call(
        "cudaGraphExecDestroy",
        [&](FakeState& state, FakeThread&) {
          if (const cudaError_t code = state.unsafe_call(); code != cudaSuccess) return code;
          if (!find_exec(state, exec, "cudaGraphExecDestroy")) return cudaErrorInvalidValue;
          state.execs.erase(reinterpret_cast<std::uintptr_t>(exec));
          state.recycle(reinterpret_cast<std::uintptr_t>(exec));
          return cudaSuccess;  // what is queued still runs
        },
        FakeCall::release);
  };
  table.cudaGraphExecKernelNodeSetParams = [](cudaGraphExec_t handle, cudaGraphNode_t node_handle,
                                              const cudaKernelNodeParams* given) {
    return fake_call("cudaGraphExecKernelNodeSetParams", [&](FakeState& state, FakeThread&) {
      FakeExec* exec = find_exec(state, handle, "cudaGraphExecKernelNodeSetParams");
      const FakeNode* node = state.find_node(node_handle, "cudaGraphExecKernelNodeSetParams");
      return exec && node && given ? set_kernel(state, *exec, *node, *given) : cudaErrorInvalidValue;
    });
  };
  table.cudaGraphUpload = [](cudaGraphExec_t handle, cudaStream_t stream_handle) {
    return fake_call("cudaGraphUpload", [&](FakeState& state, FakeThread&) {
      const FakeExec* exec = find_exec(state, handle, "cudaGraphUpload");
      const auto stream = state.find_stream(stream_handle, "cudaGraphUpload");
      if (!exec) return cudaErrorInvalidValue;
      return stream ? upload(state, *exec, stream) : cudaErrorInvalidResourceHandle;
    });
  };
  table.cudaGraphLaunch = [](cudaGraphExec_t handle, cudaStream_t stream_handle) {
    return fake_call("cudaGraphLaunch", [&](FakeState& state, FakeThread&) {
      FakeExec* exec = find_exec(state, handle, "cudaGraphLaunch");
      const auto stream = state.find_stream(stream_handle, "cudaGraphLaunch");
      if (!exec) return cudaErrorInvalidValue;
      return stream ? launch(state, *exec, stream) : cudaErrorInvalidResourceHandle;
    });
  };
}

}  // namespace burin::test
