// Whole forward passes, eager: sample_cnn/<device>[_<precision>]/batch:N and resnet50/....

#include <support/bench_support.h>

namespace burin::bench {
namespace {

struct Case {
  std::string name;
  Device device;
  DType dtype = DType::f32;
  bool allow_tf32 = false;
  Layout layout = Layout::contiguous;
};

template <class Model>
void run_model(benchmark::State& state, const Case& c, Model model, const Shape& input) {
  run_or_skip(state, [&] {
    ContextOptions options;
    options.precision.allow_tf32 = c.allow_tf32;
    Context ctx(c.device, std::move(options));
    model.init(ctx, 1);
    if constexpr (requires { model.fold_batch_norm(ctx); }) model.fold_batch_norm(ctx);
    model.to(ctx, c.dtype);
    model.to(ctx, c.layout);
    const Tensor x = to(ctx, to(ctx, uniform(ctx, input, Philox{.seed = 2}, -1, 1), c.dtype), c.layout);
    time_to_answer(state, ctx, [&] { return model(ctx, x); });
    state.SetItemsProcessed(state.iterations() * input[0]);
  });
}

const Case kCases[] = {
    {"cpu", Device::cpu()},
    {"cuda", Device::cuda()},
    {"cuda_tf32", Device::cuda(), DType::f32, true, Layout::channels_last},
    {"cuda_f16", Device::cuda(), DType::f16, false, Layout::channels_last},
    {"cuda_bf16", Device::cuda(), DType::bf16, false, Layout::channels_last},
};

void register_all() {
  for (const Case& c : kCases) {
    for (const std::int64_t batch : {1, 10, 100})
      benchmark::RegisterBenchmark(("sample_cnn/" + c.name + "/batch:" + std::to_string(batch)).c_str(),
                                   [&c, batch](benchmark::State& state) {
                                     run_model(state, c, nn::SampleCnn(), {batch, 1, 28, 28});
                                   })
          ->Unit(benchmark::kMicrosecond)
          ->UseRealTime();
    for (const std::int64_t batch : {1, 8})
      benchmark::RegisterBenchmark(("resnet50/" + c.name + "/batch:" + std::to_string(batch)).c_str(),
                                   [&c, batch](benchmark::State& state) {
                                     run_model(state, c, nn::resnet50(), {batch, 3, 224, 224});
                                   })
          ->Unit(benchmark::kMicrosecond)
          ->UseRealTime();
  }
}

}  // namespace
}  // namespace burin::bench

int main(int argc, char** argv) {
  burin::bench::register_all();
  return burin::bench::run_registered(argc, argv);
}
