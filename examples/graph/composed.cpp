// Two of Burin's models and a copy of the caller's in one CUDA graph, which the caller captures, instantiates
// and launches by the CUDA runtime. The first model is a graph already and is put in by add_to_capture(); the
// second is recorded there by record(). Needs a GPU, and says so where there is none.

#include <burin/burin.h>
#include <burin/graph/capture.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <vector>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace {

using burin::Context;
using burin::Tensor;

void check(cudaError_t error) {
  if (error != cudaSuccess) throw burin::Error(cudaGetErrorString(error));
}

/// What the caller records and launches.
class CallersGraph {
 public:
  ~CallersGraph() {
    if (exec_) cudaGraphExecDestroy(exec_);
    if (graph_) cudaGraphDestroy(graph_);
  }
  CallersGraph() = default;
  CallersGraph(const CallersGraph&) = delete;

  template <class Body>
  void capture(cudaStream_t stream, Body body) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    try {
      body();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph_);
      throw;
    }
    check(cudaStreamEndCapture(stream, &graph_));
    check(cudaGraphInstantiate(&exec_, graph_, 0));
  }
  void launch(cudaStream_t stream) { check(cudaGraphLaunch(exec_, stream)); }
  std::size_t nodes() const {
    std::size_t count = 0;
    check(cudaGraphGetNodes(graph_, nullptr, &count));
    return count;
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

/// softmax of the logits of a classifier of digits
burin::Forward probabilities(const burin::nn::SampleCnn& model) {
  return [&model](Context& ctx, std::span<const Tensor> in) {
    return std::vector<Tensor>{burin::softmax(ctx, model(ctx, in[0]), {.axis = 1})};
  };
}

void run() {
  Context ctx(burin::Device::cuda());
  burin::nn::SampleCnn models[2];
  for (int i = 0; i < 2; ++i) models[i].init(ctx, static_cast<std::uint64_t>(i));
  const burin::Forward first = probabilities(models[0]);
  const burin::Forward second = probabilities(models[1]);

  Tensor x = burin::zeros(ctx, {10, 1, 28, 28});  // what the caller's graph reads
  Tensor both = burin::empty(ctx, {2, 10, 10});   // where it leaves the results
  burin::CudaGraph captured = burin::capture(ctx, first, {x});
  burin::warm_up(ctx, second, std::span(&x, 1));

  const burin::Stream callers(ctx.device());
  const auto stream = static_cast<cudaStream_t>(callers.view().native_handle());
  const auto store = [&](int row, const Tensor& y) {
    check(cudaMemcpyAsync(both.data<float>() + row * y.count(), y.raw(), y.bytes(), cudaMemcpyDeviceToDevice,
                          stream));
  };
  burin::RecordedPass recorded;  // outlives the caller's graph, as does `captured`
  CallersGraph graph;
  callers.wait(ctx.stream());
  graph.capture(stream, [&] {
    captured.add_to_capture(callers);
    store(0, captured.outputs().front());
    recorded = burin::record(ctx, callers, second, {x});
    store(1, recorded.outputs.front());
  });

  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    burin::copy(ctx, x, burin::uniform(ctx, x.shape(), burin::Philox{.seed = seed}));
    callers.wait(ctx.stream());
    graph.launch(stream);
    ctx.stream().wait(callers);
    const Tensor apart[] = {first(ctx, std::span(&x, 1)).front(), second(ctx, std::span(&x, 1)).front()};
    const Tensor expected = burin::concat(ctx, apart).reshape({2, 10, 10});
    if (burin::to_vector<float>(ctx, both) != burin::to_vector<float>(ctx, expected))
      throw burin::Error("the caller's graph differs from separate runs");
  }
  fmt::print("two models and two copies in one graph of {} nodes: equal to separate runs, bit for bit\n",
             graph.nodes());
}

}  // namespace

int main() {
  if (const burin::CudaAvailability cuda = burin::cuda_availability(); cuda.count == 0) {
    fmt::print("this example needs a GPU: {}\n", cuda.reason);
    return 0;
  }
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "composed: {}\n", error.what());
    return 1;
  }
}
