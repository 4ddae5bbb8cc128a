#include "classifier.h"

#include <algorithm>
#include <charconv>
#include <numeric>

namespace cnn {
namespace {

using burin::Device;

Device choose_device(const Options& options, std::string& reason) {
  if (options.device) {
    reason = "asked for";
    return *options.device;
  }
  const burin::CudaAvailability cuda = burin::cuda_availability();
  if (cuda.count > 0) {
    reason = "the first GPU of this machine";
    return Device::cuda(0);
  }
  reason = "no GPU: " + cuda.reason;
  return Device::cpu();
}

burin::ContextOptions context_options(const Options& options, Device device) {
  if (options.precision == Precision::tf32 && device.is_cpu())
    throw burin::UnsupportedError("--precision tf32 is a mode of CUDA's tensor cores; on the cpu use f32");
  burin::ContextOptions result;
  result.threads = options.threads;
  result.precision.allow_tf32 = options.precision == Precision::tf32;
  return result;
}

burin::DType dtype_of(Precision precision) {
  switch (precision) {
    case Precision::f32:
    case Precision::tf32: return burin::DType::f32;
    case Precision::f16: return burin::DType::f16;
    case Precision::bf16: return burin::DType::bf16;
  }
  return burin::DType::f32;
}

float number(const burin::io::Safetensors& file, const std::string& path, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end())
    throw burin::FileError(path, -1, "__metadata__", "'" + key + "' is missing");
  float value = 0;
  const char* end = found->second.data() + found->second.size();
  const auto [rest, error] = std::from_chars(found->second.data(), end, value);
  if (error != std::errc() || rest != end)
    throw burin::FileError(path, -1, "__metadata__." + key, "not a number");
  return value;
}

}  // namespace

int Prediction::digit() const {
  return static_cast<int>(std::max_element(probabilities.begin(), probabilities.end()) -
                          probabilities.begin());
}

std::array<int, 3> Prediction::top3() const {
  std::array<int, kClasses> order;
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return probabilities[static_cast<std::size_t>(a)] > probabilities[static_cast<std::size_t>(b)];
  });
  return {order[0], order[1], order[2]};
}

Classifier::Classifier(const Options& options)
    : ctx_([&] {
        const Device device = choose_device(options, device_reason_);
        return burin::Context(device, context_options(options, device));
      }()),
      dtype_(dtype_of(options.precision)),
      executor_(ctx_,
                [this](burin::Context& ctx, std::span<const burin::Tensor> x) {
                  return std::vector<burin::Tensor>{probabilities(ctx, x[0])};
                },
                // One pass alone, as of one picture, is not worth a capture.
                {.buckets = {options.batch}, .graphs = options.graph && options.image.empty()}) {
  const auto file = burin::io::Safetensors::open(options.weights);
  model_.load_state_dict(ctx_, file);
  model_.to(ctx_, dtype_);
  const float mean = number(file, options.weights, "mean");
  const float std = number(file, options.weights, "std");
  for (std::size_t pixel = 0; pixel < scale_.size(); ++pixel)
    scale_[pixel] = (static_cast<float>(pixel) / 255.0f - mean) / std;
}

std::vector<Prediction> Classifier::classify(std::span<const std::uint8_t> pixels) {
  return read(executor_.run(load(pixels)));
}

std::vector<Prediction> Classifier::classify_eagerly(std::span<const std::uint8_t> pixels) {
  return read(probabilities(ctx_, load(pixels)));
}

/// [count, 1, 28, 28]
burin::Tensor Classifier::load(std::span<const std::uint8_t> pixels) {
  inputs_.resize(pixels.size());
  std::transform(pixels.begin(), pixels.end(), inputs_.begin(),
                 [&](std::uint8_t pixel) { return scale_[pixel]; });
  const auto count = static_cast<std::int64_t>(pixels.size()) / kPixels;
  return burin::from_host(ctx_, inputs_, {count, 1, kSide, kSide});
}

/// [count, 10]
burin::Tensor Classifier::probabilities(burin::Context& ctx, const burin::Tensor& x) const {
  const burin::Tensor logits = burin::to(ctx, model_(ctx, burin::to(ctx, x, dtype_)), burin::DType::f32);
  return burin::softmax(ctx, logits, {.axis = 1});
}

std::vector<Prediction> Classifier::read(const burin::Tensor& probabilities) {
  const std::vector<float> flat = burin::to_vector<float>(ctx_, probabilities);
  std::vector<Prediction> predictions(static_cast<std::size_t>(probabilities.extent(0)));
  for (std::size_t i = 0; i < predictions.size(); ++i)
    std::copy_n(flat.begin() + static_cast<std::ptrdiff_t>(i * kClasses), kClasses,
                predictions[i].probabilities.begin());
  return predictions;
}

}  // namespace cnn
