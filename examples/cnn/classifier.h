#pragma once

#include <burin/burin.h>
#include <burin/graph/executor.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "options.h"

namespace cnn {

constexpr std::int64_t kSide = 28;  // pixels
constexpr std::int64_t kPixels = kSide * kSide;
constexpr int kClasses = 10;

struct Prediction {
  std::array<float, kClasses> probabilities{};
  int digit() const;                // the most probable
  std::array<int, 3> top3() const;  // digits, the most probable first
};

/// The trained network on one device, with the pixel scaling it was trained with.
class Classifier {
 public:
  explicit Classifier(const Options& options);
  Classifier(const Classifier&) = delete;  // its graphs refer to it

  /// Pixels [count][28][28], one byte each, 0 = background. Host to host: returns when the results are here.
  std::vector<Prediction> classify(std::span<const std::uint8_t> pixels);
  /// The same without a graph.
  std::vector<Prediction> classify_eagerly(std::span<const std::uint8_t> pixels);
  /// Whether classify() has replayed a graph: not on the CPU, and not where none could be captured.
  bool has_replayed() const { return executor_.report().replays > 0; }

  burin::Device device() const { return ctx_.device(); }
  /// Why this device: "asked for", "the first GPU", "no GPU: ...".
  const std::string& device_reason() const { return device_reason_; }
  int threads() { return ctx_.threads().size(); }

 private:
  burin::Tensor load(std::span<const std::uint8_t> pixels);
  burin::Tensor probabilities(burin::Context& ctx, const burin::Tensor& x) const;
  std::vector<Prediction> read(const burin::Tensor& probabilities);

  std::string device_reason_;
  burin::Context ctx_;
  burin::nn::SampleCnn model_;
  burin::DType dtype_;
  std::array<float, 256> scale_{};  // from pixel to the network's input
  std::vector<float> inputs_;
  burin::GraphExecutor executor_;  // of probabilities()
};

}  // namespace cnn
