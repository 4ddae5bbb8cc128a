#pragma once

#include <burin/nn/module.h>
#include <burin/ops/avg_pool2d/avg_pool2d.h>
#include <burin/ops/common/activation.h>
#include <burin/ops/conv2d/conv2d.h>
#include <burin/ops/max_pool2d/max_pool2d.h>
#include <burin/runtime/export.h>

#include <array>
#include <cstdint>

namespace burin::nn {

struct Conv2dOptions {
  std::array<std::int64_t, 2> stride{1, 1};  // [vertical, horizontal]
  Padding2d padding{};
  std::array<std::int64_t, 2> dilation{1, 1};
  std::int64_t groups = 1;
  bool bias = true;
  Activation activation{};
};

/// conv2d with weight [out, in / groups, kernel] and bias [out].
class BURIN_API Conv2d final : public Module {
 public:
  /// Throws ShapeError if the groups do not divide the channels, or for a size below 1.
  Conv2d(std::int64_t in, std::int64_t out, std::array<std::int64_t, 2> kernel, Conv2dOptions options = {});
  Conv2d(std::int64_t in, std::int64_t out, std::int64_t kernel, Conv2dOptions options = {})
      : Conv2d(in, out, {kernel, kernel}, options) {}

  Tensor forward(Context& ctx, const Tensor& x) const override;
  /// activation(conv2d(x) + residual) in one call, whatever activation the parameters have.
  Tensor forward_fused(Context& ctx, const Tensor& x, const Activation& activation,
                       const Tensor& residual = {}) const;
  void list(Members& m) override { m.add("weight", weight).add("bias", bias); }

  Conv2dParams params;
  Parameter weight;
  Parameter bias;
};

/// linear with weight [out, in] and bias [out].
class BURIN_API Linear final : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, bool with_bias = true, const Activation& fused = {});
  Tensor forward(Context& ctx, const Tensor& x) const override;
  void list(Members& m) override { m.add("weight", weight).add("bias", bias); }

  Activation activation{};
  Parameter weight;
  Parameter bias;
};

/// Batch normalisation by running statistics (inference).
class BURIN_API BatchNorm2d final : public Module {
 public:
  explicit BatchNorm2d(std::int64_t channels, float epsilon = 1e-5f);
  Tensor forward(Context& ctx, const Tensor& x) const override { return forward_fused(ctx, x, {}); }
  Tensor forward_fused(Context& ctx, const Tensor& x, const Activation& activation) const;
  void list(Members& m) override {
    m.add("weight", weight)
        .add("bias", bias)
        .add("running_mean", running_mean)
        .add("running_var", running_var);
  }

  float eps;
  Parameter weight;
  Parameter bias;
  Parameter running_mean;
  Parameter running_var;
};

class BURIN_API MaxPool2d final : public Module {
 public:
  explicit MaxPool2d(const MaxPool2dParams& pool) : params(pool) {}
  explicit MaxPool2d(std::int64_t kernel) : params{.kernel = {kernel, kernel}} {}
  Tensor forward(Context& ctx, const Tensor& x) const override;
  MaxPool2dParams params;
};

class BURIN_API AvgPool2d final : public Module {
 public:
  explicit AvgPool2d(const AvgPool2dParams& pool) : params(pool) {}
  explicit AvgPool2d(std::int64_t kernel) : params{.kernel = {kernel, kernel}} {}
  Tensor forward(Context& ctx, const Tensor& x) const override;
  AvgPool2dParams params;
};

/// [N, C, H, W] to [N, C, 1, 1].
class BURIN_API GlobalAvgPool2d final : public Module {
 public:
  Tensor forward(Context& ctx, const Tensor& x) const override;
};

class BURIN_API ReLU final : public Module {
 public:
  Tensor forward(Context& ctx, const Tensor& x) const override;
};

/// Merges axes first..last in row-major order: the channels-last copy of a tensor gives the same values.
class BURIN_API Flatten final : public Module {
 public:
  explicit Flatten(int first_axis = 1, int last_axis = -1) : first(first_axis), last(last_axis) {}
  Tensor forward(Context& ctx, const Tensor& x) const override;
  int first;
  int last;
};

/// The identity: nothing is dropped at inference.
class BURIN_API Dropout final : public Module {
 public:
  explicit Dropout(double = 0.5) {}
  Tensor forward(Context&, const Tensor& x) const override { return x; }
};

}  // namespace burin::nn
