#pragma once

#include <burin/nn/conv_bn.h>
#include <burin/nn/layers.h>
#include <burin/runtime/export.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace burin::nn {

/// relu(convolutions(x) + shortcut(x)). Two 3x3 convolutions (basic) or 1x1, 3x3, 1x1 (bottleneck, the stride
/// on the 3x3); a 1x1 convolution on the shortcut where the shape changes.
class BURIN_API ResidualBlock final : public Module {
 public:
  static ResidualBlock basic(std::int64_t in, std::int64_t width, std::int64_t stride);
  static ResidualBlock bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride);

  Tensor forward(Context& ctx, const Tensor& x) const override;
  void list(Members& m) override;
  void fold_batch_norm(Context& ctx);
  std::int64_t out_channels() const { return convs_.back().conv.weight.shape()[0]; }

 private:
  ResidualBlock(std::vector<ConvBn> convs, std::int64_t in, std::int64_t stride);
  std::vector<ConvBn> convs_;
  std::optional<ConvBn> downsample_;
};

/// A residual network for images, [N, 3, H, W] to logits [N, classes] (He et al. 2016; torchvision's variant
/// 1.5 and torchvision's parameter names).
class BURIN_API ResNet final : public Module {
 public:
  using MakeBlock = ResidualBlock (*)(std::int64_t in, std::int64_t width, std::int64_t stride);
  /// `depths`: the blocks of each stage, at least one.
  ResNet(MakeBlock make_block, const std::array<int, 4>& depths, std::int64_t classes);

  Tensor forward(Context& ctx, const Tensor& x) const override;
  void list(Members& m) override;
  /// Folds every batch norm into its convolution: faster, the same function. State dicts of the unfolded
  /// network do not fit afterwards.
  void fold_batch_norm(Context& ctx);

 private:
  ConvBn stem_;
  std::array<std::vector<ResidualBlock>, 4> stages_;
  Linear fc_;
};

BURIN_API ResNet resnet18(std::int64_t classes = 1000);
BURIN_API ResNet resnet50(std::int64_t classes = 1000);

}  // namespace burin::nn
