#pragma once
// The models that graphs are measured with.

#include <burin/nn/models/resnet.h>
#include <burin/nn/models/sample_cnn.h>
#include <burin/nn/module.h>
#include <burin/runtime/context.h>
#include <burin/runtime/copy.h>
#include <burin/runtime/random.h>

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

namespace burin::bench {

struct Precision {
  const char* name;
  DType dtype;
  bool allow_tf32;
  Layout layout;
};
inline constexpr Precision kPrecisions[] = {
    {"f32", DType::f32, false, Layout::contiguous},
    {"tf32", DType::f32, true, Layout::channels_last},
    {"f16", DType::f16, false, Layout::channels_last},
};

template <class Model>
std::unique_ptr<nn::Module> initialized(Context& ctx, Model model) {
  model.init(ctx, 1);
  if constexpr (requires { model.fold_batch_norm(ctx); }) model.fold_batch_norm(ctx);
  return std::make_unique<Model>(std::move(model));
}

struct ModelCase {
  const char* name;
  std::unique_ptr<nn::Module> (*make)(Context&);
  Shape image;  // [channels, height, width]
  std::array<std::int64_t, 3> batches;
};
inline const ModelCase kModels[] = {
    {"sample_cnn", [](Context& ctx) { return initialized(ctx, nn::SampleCnn()); }, {1, 28, 28}, {1, 10, 256}},
    {"resnet18", [](Context& ctx) { return initialized(ctx, nn::resnet18()); }, {3, 224, 224}, {1, 8, 64}},
    {"resnet50", [](Context& ctx) { return initialized(ctx, nn::resnet50()); }, {3, 224, 224}, {1, 8, 64}},
};

inline ContextOptions options_for(const Precision& precision) {
  ContextOptions options;
  options.precision.allow_tf32 = precision.allow_tf32;
  options.autotune = true;
  return options;
}

inline std::unique_ptr<nn::Module> converted(Context& ctx, std::unique_ptr<nn::Module> model,
                                             const Precision& precision) {
  model->to(ctx, precision.dtype);
  model->to(ctx, precision.layout);
  return model;
}

inline Tensor make_input(Context& ctx, const ModelCase& c, const Precision& precision, std::int64_t batch) {
  const Tensor x = uniform(ctx, {batch, c.image[0], c.image[1], c.image[2]}, Philox{.seed = 2}, -1, 1);
  return to(ctx, to(ctx, x, precision.dtype), precision.layout);
}

}  // namespace burin::bench
