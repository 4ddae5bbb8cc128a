// CUDA graphs, for those who know them from PyTorch:
//
//   torch.cuda.CUDAGraph(), warm-up on a side stream,    capture(ctx, forward, inputs), which warms up itself
//   with torch.cuda.graph(g): ...
//   static_input.copy_(x); g.replay()                    graph.replay(stream, {x}): no static inputs
//   make_graphed_callables(model, x)                     GraphExecutor(ctx, model, {.buckets = {1, 10}})
//   with torch.cuda.stream(side): g.replay()             graph.replay(side)
//   g.capture_begin(); y = f(x); g.capture_end()         graph.capture_begin(ctx); ... graph.capture_end()
//
// Usage: graph [cpu | cuda | cuda:N]. Each part checks what it shows. A GraphExecutor gives the same results
// on the CPU, where it runs eagerly; parts 4, 6 and 7 need a GPU. composed.cpp has two models in a graph of
// the caller's.

#include <burin/burin.h>
#include <burin/graph/capture.h>
#include <burin/graph/executor.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

namespace {

using burin::Context;
using burin::Device;
using burin::GraphExecutor;
using burin::Tensor;
using Tensors = std::vector<Tensor>;
using Inputs = std::span<const Tensor>;

std::vector<float> values_of(Context& ctx, const Tensor& x) { return burin::to_vector<float>(ctx, x); }

void check(bool holds, const char* claim) {
  if (!holds) throw burin::Error(fmt::format("this does not hold: {}", claim));
}

/// "a graph of 3 nodes", or why there is none.
std::string way_of(const GraphExecutor& executor) {
  const auto report = executor.report();
  if (report.replays == 0) return "run eagerly";
  return fmt::format("replayed from a graph of {} nodes", report.graphs.front().nodes);
}

/// 1. x = randn(1000), y = x + x: each replay draws fresh numbers, the ones that eager would draw.
void show_random(Context& ctx) {
  const auto twice_normal = [](Context& c, burin::Generator& random) {
    const Tensor x = burin::normal(c, {1000}, random);
    return burin::add(c, x, x);
  };
  burin::Generator in_graph(42);
  burin::Generator eager(42);
  GraphExecutor executor(ctx, [&](Context& c, Inputs) { return Tensors{twice_normal(c, in_graph)}; });
  std::vector<float> first;
  std::vector<float> last;
  for (int run = 0; run < 3; ++run) {
    last = values_of(ctx, executor.run(Inputs()).front());
    check(last == values_of(ctx, twice_normal(ctx, eager)), "a replay draws what eager draws");
    if (run == 0) first = last;
  }
  check(first != last, "each replay draws other numbers");
  fmt::print("1. x = randn(1000), y = x + x, {}:\n", way_of(executor));
  fmt::print("   y[0] is {:.4f} in the first run and {:.4f} in the third, as without a graph\n", first[0],
             last[0]);
}

/// 2. A * B + v, with other inputs at each run.
void show_product(Context& ctx) {
  const burin::Forward forward = [](Context& c, Inputs in) {
    return Tensors{burin::add(c, burin::matmul(c, in[0], in[1]), in[2])};
  };
  GraphExecutor executor(ctx, forward, {.names = {"A", "B", "v"}});
  burin::Generator random(1);
  for (int run = 0; run < 3; ++run) {
    const Tensors inputs = {burin::normal(ctx, {64, 32}, random), burin::normal(ctx, {32, 48}, random),
                            burin::normal(ctx, {48}, random)};
    const Tensor y = executor.run(inputs).front();
    check(values_of(ctx, y) == values_of(ctx, forward(ctx, inputs).front()), "A * B + v is that of eager");
  }
  fmt::print("2. A * B + v of three different A, B and v, {}: equal to eager, bit for bit\n",
             way_of(executor));
}

double median_microseconds(const std::function<void()>& body) {
  using Clock = std::chrono::steady_clock;
  constexpr int kWarmUps = 10;
  std::vector<double> times;
  for (int run = 0; run < kWarmUps + 101; ++run) {
    const auto start = Clock::now();
    body();
    const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
    if (run >= kWarmUps) times.push_back(elapsed.count());
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

/// 3. A CNN at batch 10. Its kernels are short, so that eager takes longer to launch them than they run.
void show_cnn(Context& ctx) {
  burin::nn::SampleCnn model;
  model.init(ctx, 1);
  GraphExecutor executor(ctx, model, {.buckets = {10}});
  const Tensor x = burin::uniform(ctx, {10, 1, 28, 28}, burin::Philox{.seed = 2});
  check(values_of(ctx, executor.run(x)) == values_of(ctx, model(ctx, x)), "the logits are those of eager");
  const Tensor few = x.slice(0, 0, 3);  // padded to the bucket, and the outputs cut
  check(executor.run(few).shape() == burin::Shape({3, 10}), "a batch of 3 gives 3 rows");

  const double eager = median_microseconds([&] {
    model(ctx, x);
    ctx.synchronize();
  });
  const double replayed = median_microseconds([&] {
    executor.run(x);
    ctx.synchronize();
  });
  fmt::print("3. the sample CNN at batch 10, {}:\n", way_of(executor));
  fmt::print("   eager     {:9.1f} us, call to result\n", eager);
  fmt::print("   executor  {:9.1f} us\n", replayed);
}

/// 4. A graph belongs to no stream: a replay runs in the order of the one it is given.
void show_another_stream(Context& ctx) {
  const Tensor x = burin::full(ctx, {1000}, 3);
  burin::CudaGraph graph =
      burin::capture(ctx, [](Context& c, Inputs in) { return Tensors{burin::add(c, in[0], in[0])}; }, {x});
  const Tensor other = burin::full(ctx, {1000}, 50);
  const burin::Stream side(ctx.device());
  side.wait(ctx.stream());  // other is written there
  graph.replay(side, std::array{other});
  ctx.stream().wait(side);  // from here on ctx may use the outputs
  const std::vector<float> y = values_of(ctx, graph.outputs().front());
  check(y == std::vector<float>(1000, 100), "a replay on another stream gives the right sum");
  fmt::print("4. captured on one stream, replayed on another with other inputs: 50 + 50 = {}\n", y[0]);
}

/// 5. Capture, replay, save the result to a file.
void show_file(Context& ctx) {
  burin::nn::SampleCnn model;
  model.init(ctx, 1);
  GraphExecutor executor(ctx, model);
  const Tensor logits = executor.run(burin::uniform(ctx, {10, 1, 28, 28}, burin::Philox{.seed = 3}));
  const auto path = std::filesystem::temp_directory_path() / fmt::format("burin_graph_{}.npy", getpid());
  burin::io::save_npy(ctx, path.string(), logits);
  const Tensor loaded = burin::io::load_npy(path.string());
  check(loaded.shape() == logits.shape() && values_of(ctx, loaded) == values_of(ctx, logits),
        "the file holds the result");
  std::filesystem::remove(path);
  fmt::print("5. logits of the sample CNN, {}, saved to {} and read back\n", way_of(executor), path.string());
}

burin::Forward square() {
  return [](Context& c, Inputs in) { return Tensors{burin::mul(c, in[0], in[0])}; };
}

/// 6. A capture by hand reads and writes the tensors that it was recorded with.
void show_capture_by_hand(Context& ctx) {
  Tensor x = burin::full(ctx, {4}, 5);
  burin::warm_up(ctx, square(), std::array{x});
  burin::CudaGraph graph;
  graph.capture_begin(ctx);
  const Tensor y = square()(ctx, std::array{x}).front();  // recorded, not run
  graph.capture_end();
  burin::copy(ctx, x, burin::full(ctx, {4}, 7));
  graph.replay(ctx.stream());
  check(values_of(ctx, y) == std::vector<float>(4, 49), "a replay reads what x holds then");
  fmt::print("6. captured by hand: 7 * 7 = {}\n", values_of(ctx, y)[0]);
}

std::string refusal_of(const std::function<void()>& mistake) {
  try {
    mistake();
  } catch (const burin::Error& error) {
    return error.what();
  }
  throw burin::Error("a mistake is not refused");
}

/// 7. Mistakes that cost an exception instead of wrong numbers. The graph and the context stay as they were.
void show_refusals(Context& ctx) {
  const Tensor x = burin::full(ctx, {4}, 5);
  burin::CudaGraph graph = burin::capture(ctx, square(), {x}, {.names = {"x"}});
  const Tensor other = burin::full(ctx, {2, 2}, 5);
  fmt::print("7. refused: {}\n", refusal_of([&] { graph.replay(ctx.stream(), std::array{other}); }));
  const burin::Forward reads_a_value = [](Context& c, Inputs in) {
    return Tensors{burin::full(c, {4}, values_of(c, burin::mul(c, in[0], in[0]))[0])};
  };
  fmt::print("   refused: {}\n", refusal_of([&] { burin::capture(ctx, reads_a_value, {x}); }));
  graph.replay(ctx.stream());
  check(values_of(ctx, graph.outputs().front()) == std::vector<float>(4, 25), "refusals change nothing");
}

void run(const std::string& name) {
  const bool has_cuda = burin::cuda_availability().count > 0;
  const Device device = !name.empty() ? Device::parse(name) : has_cuda ? Device::cuda() : Device::cpu();
  Context ctx(device);
  fmt::print("device: {} ({})\n", burin::name(device), burin::description(device));
  if (device.is_cpu()) fmt::print("no graphs here: they need a GPU, and without one all runs eagerly\n");
  show_random(ctx);
  show_product(ctx);
  show_cnn(ctx);
  if (!device.is_cpu()) show_another_stream(ctx);
  show_file(ctx);
  if (device.is_cpu()) {
    fmt::print("4, 6 and 7 (another stream, a capture by hand, what is refused) need a GPU\n");
    return;
  }
  show_capture_by_hand(ctx);
  show_refusals(ctx);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) {
    fmt::print(stderr, "usage: graph [cpu | cuda | cuda:N]\n");
    return 2;
  }
  try {
    run(argc == 2 ? argv[1] : "");
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "graph: {}\n", error.what());
    return 1;
  }
}
