// Every operator but conv2d once, at a size from ResNet-50 or a transformer: <operator>/<device>/<precision>.
// On the CPU host to host, on a GPU on the device; convolutions are in resnet50_layer_bench.

#include <support/bench_support.h>

#include <array>
#include <functional>
#include <vector>

namespace burin::bench {
namespace {

/// Draws operands of the benchmark's type and returns the call to be timed.
using Prepare =
    std::function<std::function<Tensor()>(Context&, const std::function<Tensor(const Shape&)>& draw)>;

struct Case {
  const char* name;
  Prepare prepare;
};

const Shape kImage{1, 256, 56, 56};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"add",
       [](Context& ctx, const auto& draw) {
         return [&ctx, a = draw(kImage), b = draw(kImage)] { return add(ctx, a, b); };
       }},
      {"add_channels",
       [](Context& ctx, const auto& draw) {
         return [&ctx, a = draw(kImage), b = draw({256, 1, 1})] { return add(ctx, a, b); };
       }},
      {"relu",
       [](Context& ctx, const auto& draw) { return [&ctx, x = draw(kImage)] { return relu(ctx, x); }; }},
      {"gelu",
       [](Context& ctx, const auto& draw) {
         return [&ctx, x = draw({128, 3072})] { return gelu(ctx, x); };
       }},
      {"batch_norm",
       [](Context& ctx, const auto& draw) {
         return [&ctx, x = draw(kImage), mean = draw({256}), var = full(ctx, {256}, 1)] {
           return batch_norm(ctx, x, mean, to(ctx, var, x.dtype()));
         };
       }},
      {"max_pool2d",
       [](Context& ctx, const auto& draw) {
         return [&ctx, x = draw({1, 64, 112, 112})] {
           return max_pool2d(ctx, x, {.kernel = {3, 3}, .stride = {2, 2}, .padding = Padding2d::all(1)});
         };
       }},
      {"avg_pool2d",
       [](Context& ctx, const auto& draw) {
         return [&ctx, x = draw(kImage)] { return avg_pool2d(ctx, x, {.kernel = {2, 2}}); };
       }},
      {"global_avg_pool2d",
       [](Context& ctx, const auto& draw) {
         return [&ctx, x = draw({8, 2048, 7, 7})] { return global_avg_pool2d(ctx, x); };
       }},
      {"matmul",
       [](Context& ctx, const auto& draw) {
         return [&ctx, a = draw({12, 128, 64}), b = draw({12, 128, 64})] {
           return matmul(ctx, a, b.transpose(1, 2));
         };
       }},
      {"linear",
       [](Context& ctx, const auto& draw) {
         return [&ctx, x = draw({128, 768}), w = draw({3072, 768}), b = draw({3072})] {
           return linear(ctx, x, w, b);
         };
       }},
      {"softmax",
       [](Context& ctx, const auto& draw) {
         return [&ctx, x = draw({12, 128, 128})] { return softmax(ctx, x); };
       }},
      {"argmax",
       [](Context& ctx, const auto& draw) {
         return [&ctx, x = draw({128, 30522})] { return argmax(ctx, x); };
       }},
      {"concat",
       [](Context& ctx, const auto& draw) {
         return [&ctx, parts = std::array{draw(kImage), draw(kImage)}] {
           return concat(ctx, parts, {.axis = 1});
         };
       }},
      {"cast",
       [](Context& ctx, const auto& draw) {
         return [&ctx, x = draw(kImage)] {
           return cast(ctx, x, {x.dtype() == DType::f32 ? DType::f16 : DType::f32});
         };
       }},
  };
  return all;
}

void run(benchmark::State& state, const Case& c, Device device, DType dtype) {
  run_or_skip(state, [&] {
    Context ctx(device);
    std::uint64_t seed = 0;
    const auto call = c.prepare(ctx, [&](const Shape& shape) {
      return to(ctx, uniform(ctx, shape, Philox{.seed = ++seed}, -1, 1), dtype);
    });
    if (device.is_cuda())
      time_on_device(state, ctx, call);
    else
      time_to_answer(state, ctx, call);
  });
}

void register_all() {
  for (const Case& c : cases())
    for (const Device device : {Device::cpu(), Device::cuda()})
      for (const DType dtype : {DType::f32, DType::f16}) {
        if (device.is_cpu() && dtype != DType::f32) continue;
        const std::string full =
            std::string(c.name) + (device.is_cpu() ? "/cpu/" : "/cuda/") + std::string(name(dtype));
        auto* registered = benchmark::RegisterBenchmark(
            full.c_str(), [&c, device, dtype](benchmark::State& state) { run(state, c, device, dtype); });
        registered->Unit(benchmark::kMicrosecond);
        if (device.is_cuda())
          registered->UseManualTime();
        else
          registered->UseRealTime();
      }
}

}  // namespace
}  // namespace burin::bench

int main(int argc, char** argv) {
  burin::bench::register_all();
  return burin::bench::run_registered(argc, argv);
}
