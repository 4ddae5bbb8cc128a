// What replaying a graph costs, on a GPU:
//   <model>/<precision>/batch:N/<eager|graph>/<wait>   a forward pass, eager and by a GraphExecutor
//   empty/<raw|graph>/kernels:N/<wait>                 a graph of kernels that do nothing, launched by the
//                                                      CUDA runtime alone, and replayed by Burin
//   inputs/<without|same|moved>/tensors:8/<wait>       a replay that is given no inputs, those of the last
//                                                      one, or others
// <wait> is call, queue or host (graph_timing.h). The label tells bench/compare_pytorch.py what ran, as
// words key=value.

#include <burin/graph/executor.h>
#include <burin/runtime/check.h>

#include <array>
#include <functional>
#include <graph/graph_timing.h>
#include <graph/models.h>
#include <memory>
#include <optional>
#include <utility>

#ifdef BURIN_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace burin::bench {

const void* empty_kernel_address();  // empty_kernel.cu

namespace {

/// A model that is ready to run.
struct Prepared {
  std::string name;
  Context ctx;
  std::unique_ptr<nn::Module> model;
  Tensor x;
  GraphExecutor executor;

  Prepared(std::string named, const ModelCase& c, const Precision& precision, std::int64_t batch)
      : name(std::move(named)),
        ctx(Device::cuda(), options_for(precision)),
        model(converted(ctx, c.make(ctx), precision)),
        x(make_input(ctx, c, precision, batch)),
        executor(ctx, *model, {.strict = true}) {}
};

/// The benchmarks of one case come one after the other and share it.
using PreparedLast = std::shared_ptr<std::optional<Prepared>>;

void run_model(benchmark::State& state, const PreparedLast& last, const ModelCase& c,
               const Precision& precision, std::int64_t batch, bool graph, Wait wait) {
  run_or_skip(state, [&] {
    const std::string name = fmt::format("{} {} {}", c.name, precision.name, batch);
    if (!*last || (*last)->name != name) {
      last->reset();
      last->emplace(name, c, precision, batch);
    }
    Prepared& prepared = **last;
    time_calls(
        state, wait,
        [&] {
          benchmark::DoNotOptimize(graph ? prepared.executor.run(prepared.x)
                                         : (*prepared.model)(prepared.ctx, prepared.x));
        },
        [&] { prepared.ctx.synchronize(); });
    state.SetItemsProcessed(state.iterations() * batch);
    state.SetLabel(fmt::format("model={} precision={} batch={} mode={} wait={} layout={}", c.name,
                               precision.name, batch, graph ? "graph" : "eager", bench::name(wait),
                               precision.layout == Layout::channels_last ? "channels_last" : "contiguous"));
  });
}

void register_models(const PreparedLast& last) {
  for (const ModelCase& c : kModels)
    for (const Precision& precision : kPrecisions)
      for (const std::int64_t batch : c.batches)
        for (const bool graph : {false, true})
          for (const Wait wait : kWaits)
            register_timed(fmt::format("{}/{}/batch:{}/{}/{}", c.name, precision.name, batch,
                                       graph ? "graph" : "eager", bench::name(wait)),
                           wait, [=, &c, &precision](benchmark::State& state) {
                             run_model(state, last, c, precision, batch, graph, wait);
                           });
}

/// Eight small tensors, each read by one kernel of Burin's.
void run_inputs(benchmark::State& state, const std::string& kind, Wait wait) {
  run_or_skip(state, [&] {
    Context ctx(Device::cuda());
    std::vector<Tensor> here;
    std::vector<Tensor> there;
    for (int i = 0; i < 8; ++i) {
      here.push_back(zeros(ctx, {256}));
      there.push_back(zeros(ctx, {256}));
    }
    const Forward forward = [](Context& at, std::span<const Tensor> inputs) {
      std::vector<Tensor> outputs;
      for (const Tensor& x : inputs) outputs.push_back(relu(at, x));
      return outputs;
    };
    CudaGraph graph = capture(ctx, forward, here);
    bool is_there = false;
    time_calls(
        state, wait,
        [&] {
          if (kind == "without") return graph.replay(ctx.stream());
          if (kind == "moved") is_there = !is_there;
          graph.replay(ctx.stream(), is_there ? there : here);
        },
        [&] { ctx.synchronize(); });
    state.SetLabel(fmt::format("inputs={} tensors=8 wait={}", kind, bench::name(wait)));
  });
}

#ifdef BURIN_WITH_CUDA
void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  throw CudaError(fmt::format("{}: {}", call, cudaGetErrorString(status)), status);
}

void launch_empty(cudaStream_t stream, int kernels) {
  for (int i = 0; i < kernels; ++i)
    check(cudaLaunchKernel(empty_kernel_address(), 1, 1, nullptr, 0, stream), "cudaLaunchKernel");
}

/// The least that any graph can cost: captured, instantiated and launched by hand.
class RawGraph {
 public:
  RawGraph(cudaStream_t stream, int kernels) : stream_(stream) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    launch_empty(stream, kernels);
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    const cudaError_t status = cudaGraphInstantiate(&exec_, graph, 0);
    (void)cudaGraphDestroy(graph);
    check(status, "cudaGraphInstantiate");
    check(cudaGraphUpload(exec_, stream), "cudaGraphUpload");
  }
  ~RawGraph() { (void)cudaGraphExecDestroy(exec_); }
  RawGraph(const RawGraph&) = delete;
  RawGraph& operator=(const RawGraph&) = delete;
  void launch() { check(cudaGraphLaunch(exec_, stream_), "cudaGraphLaunch"); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t exec_ = nullptr;
};

void run_empty(benchmark::State& state, bool raw, int kernels, Wait wait) {
  run_or_skip(state, [&] {
    Context ctx(Device::cuda());
    auto* stream = static_cast<cudaStream_t>(ctx.stream().native_handle());
    launch_empty(stream, 1);  // loads the kernel
    const auto wait_for_it = [&] { check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); };
    wait_for_it();
    if (raw) {
      RawGraph graph(stream, kernels);
      time_calls(
          state, wait, [&] { graph.launch(); }, wait_for_it);
    } else {
      CudaGraph graph;
      graph.capture_begin(ctx);
      launch_empty(stream, kernels);
      graph.capture_end();
      time_calls(
          state, wait, [&] { graph.replay(ctx.stream()); }, wait_for_it);
    }
    state.SetLabel(
        fmt::format("graph={} kernels={} wait={}", raw ? "raw" : "burin", kernels, bench::name(wait)));
  });
}

void register_empty() {
  for (const int kernels : {1, 3, 6, 60})
    for (const Wait wait : kWaits)
      for (const bool raw : {true, false})
        register_timed(
            fmt::format("empty/{}/kernels:{}/{}", raw ? "raw" : "graph", kernels, bench::name(wait)), wait,
            [=](benchmark::State& state) { run_empty(state, raw, kernels, wait); });
}
#else
void register_empty() {}
#endif

void register_all(const PreparedLast& last) {
  register_empty();
  for (const Wait wait : kWaits)
    for (const char* kind : {"without", "same", "moved"})
      register_timed(fmt::format("inputs/{}/tensors:8/{}", kind, bench::name(wait)), wait,
                     [=](benchmark::State& state) { run_inputs(state, kind, wait); });
  register_models(last);
}

int run(int argc, char** argv) {
  const auto last = std::make_shared<std::optional<Prepared>>();
  register_all(last);
  const int status = run_registered(argc, argv);
  last->reset();  // before the driver goes
  return status;
}

}  // namespace
}  // namespace burin::bench

int main(int argc, char** argv) { return burin::bench::run(argc, argv); }
