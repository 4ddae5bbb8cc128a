// The layers of ResNet-50 at batch 1 and 8, each by every backend that has it, timed on the device:
// conv/<backend>/<precision>/<layer>/batch:N, max_pool/..., linear/....

#include <support/bench_support.h>

#include <vector>

namespace burin::bench {
namespace {

struct Mode {
  const char* name;
  DType dtype;
  bool allow_tf32;
  Layout layout;
};
constexpr Mode kModes[] = {
    {"f32", DType::f32, false, Layout::contiguous},
    {"tf32", DType::f32, true, Layout::channels_last},
    {"f16", DType::f16, false, Layout::channels_last},
    {"bf16", DType::bf16, false, Layout::channels_last},
};

struct Conv {
  const char* name;
  std::int64_t channels, side, filters, kernel, stride;
};
constexpr Conv kConvs[] = {
    {"stem_7x7s2_3x224_64", 3, 224, 64, 7, 2}, {"1x1_64x56_64", 64, 56, 64, 1, 1},
    {"3x3_64x56_64", 64, 56, 64, 3, 1},        {"1x1_64x56_256", 64, 56, 256, 1, 1},
    {"1x1_256x56_128", 256, 56, 128, 1, 1},    {"3x3s2_128x56_128", 128, 56, 128, 3, 2},
    {"1x1s2_256x56_512", 256, 56, 512, 1, 2},  {"3x3_128x28_128", 128, 28, 128, 3, 1},
    {"1x1_128x28_512", 128, 28, 512, 1, 1},    {"3x3_256x14_256", 256, 14, 256, 3, 1},
    {"1x1_1024x14_256", 1024, 14, 256, 1, 1},  {"3x3_512x7_512", 512, 7, 512, 3, 1},
    {"1x1_512x7_2048", 512, 7, 2048, 1, 1},
};

Context make_context(Backend backend, const Mode& mode) {
  ContextOptions options;
  options.precision.allow_tf32 = mode.allow_tf32;
  options.autotune = true;
  Context ctx(Device::cuda(), std::move(options));
  ctx.prefer(backend);
  return ctx;
}

Tensor random(Context& ctx, const Mode& mode, const Shape& shape, std::uint64_t seed) {
  const Tensor x = to(ctx, uniform(ctx, shape, Philox{.seed = seed}, -1, 1), mode.dtype);
  return shape.rank() == 4 ? to(ctx, x, mode.layout) : x;
}

void run_conv(benchmark::State& state, Backend backend, const Mode& mode, const Conv& c, std::int64_t batch) {
  run_or_skip(state, [&] {
    Context ctx = make_context(backend, mode);
    const std::int64_t pad = c.kernel / 2;
    const Conv2dParams params{
        .stride = {c.stride, c.stride}, .padding = Padding2d::all(pad), .activation = Activation::relu()};
    const Tensor x = random(ctx, mode, {batch, c.channels, c.side, c.side}, 1);
    const Tensor w = random(ctx, mode, {c.filters, c.channels, c.kernel, c.kernel}, 2);
    const Tensor bias = random(ctx, mode, {c.filters}, 3);
    Tensor y = conv2d(ctx, x, w, bias, params);
    time_on_device(state, ctx, [&] {
      conv2d_into(ctx, y, x, w, bias, params);
      return y.raw();
    });
    const double flops =
        2.0 * static_cast<double>(y.count()) * static_cast<double>(c.channels * c.kernel * c.kernel);
    state.counters["TFLOP/s"] = benchmark::Counter(flops * 1e-12 * static_cast<double>(state.iterations()),
                                                   benchmark::Counter::kIsRate);
  });
}

void run_linear(benchmark::State& state, Backend backend, const Mode& mode, std::int64_t batch) {
  run_or_skip(state, [&] {
    Context ctx = make_context(backend, mode);
    const Tensor x = random(ctx, mode, {batch, 2048}, 1);
    const Tensor w = random(ctx, mode, {1000, 2048}, 2);
    const Tensor bias = random(ctx, mode, {1000}, 3);
    Tensor y = linear(ctx, x, w, bias);
    time_on_device(state, ctx, [&] {
      linear_into(ctx, y, x, w, bias);
      return y.raw();
    });
  });
}

void run_max_pool(benchmark::State& state, Backend backend, const Mode& mode, std::int64_t batch) {
  run_or_skip(state, [&] {
    Context ctx = make_context(backend, mode);
    const Tensor x = random(ctx, mode, {batch, 64, 112, 112}, 1);
    const MaxPool2dParams params{.kernel = {3, 3}, .stride = {2, 2}, .padding = Padding2d::all(1)};
    Tensor y = max_pool2d(ctx, x, params);
    time_on_device(state, ctx, [&] {
      max_pool2d_into(ctx, y, x, params);
      return y.raw();
    });
  });
}

template <class Run>
void add(const std::string& kind, Backend backend, const Mode& mode, const std::string& layer,
         std::int64_t batch, Run run) {
  const std::string full = kind + "/" + std::string(name(backend)) + "/" + mode.name + "/" + layer +
                           "/batch:" + std::to_string(batch);
  benchmark::RegisterBenchmark(full.c_str(), run)->Unit(benchmark::kMicrosecond)->UseManualTime();
}

void register_all() {
  for (const Mode& mode : kModes) {
    for (const std::int64_t batch : {1, 8}) {
      for (const Conv& conv : kConvs)
        for (const Backend backend : {Backend::cuda, Backend::cudnn})
          add("conv", backend, mode, conv.name, batch,
              [=, &mode, &conv](benchmark::State& state) { run_conv(state, backend, mode, conv, batch); });
      for (const Backend backend : {Backend::cuda, Backend::cublaslt})
        add("linear", backend, mode, "2048_1000", batch,
            [=, &mode](benchmark::State& state) { run_linear(state, backend, mode, batch); });
      if (mode.allow_tf32) continue;  // pooling multiplies nothing
      for (const Backend backend : {Backend::cuda, Backend::cudnn})
        add("max_pool", backend, mode, "3x3s2_64x112", batch,
            [=, &mode](benchmark::State& state) { run_max_pool(state, backend, mode, batch); });
    }
  }
}

}  // namespace
}  // namespace burin::bench

int main(int argc, char** argv) {
  burin::bench::register_all();
  return burin::bench::run_registered(argc, argv);
}
