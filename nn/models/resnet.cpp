#include <burin/nn/models/resnet.h>

#include <string>
#include <utility>

namespace burin::nn {
namespace {

using Stages = std::array<std::vector<ResidualBlock>, 4>;

Stages make_stages(ResNet::MakeBlock make_block, const std::array<int, 4>& depths) {
  Stages stages;
  std::int64_t channels = 64;
  for (std::size_t stage = 0; stage < 4; ++stage) {
    for (int i = 0; i < depths[stage]; ++i) {
      const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      stages[stage].push_back(make_block(channels, std::int64_t{64} << stage, stride));
      channels = stages[stage].back().out_channels();
    }
  }
  return stages;
}

}  // namespace

ResidualBlock::ResidualBlock(std::vector<ConvBn> convs, std::int64_t in, std::int64_t stride)
    : convs_(std::move(convs)) {
  if (stride != 1 || in != out_channels()) downsample_.emplace(in, out_channels(), 1, stride);
}

ResidualBlock ResidualBlock::basic(std::int64_t in, std::int64_t width, std::int64_t stride) {
  return {{ConvBn(in, width, 3, stride), ConvBn(width, width, 3, 1)}, in, stride};
}

ResidualBlock ResidualBlock::bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride) {
  return {
      {ConvBn(in, width, 1, 1), ConvBn(width, width, 3, stride), ConvBn(width, 4 * width, 1, 1)}, in, stride};
}

Tensor ResidualBlock::forward(Context& ctx, const Tensor& x) const {
  const Tensor shortcut = downsample_ ? (*downsample_)(ctx, x, {}) : x;  // [N, out, H / stride, W / stride]
  Tensor h = x;
  for (std::size_t i = 0; i + 1 < convs_.size(); ++i) h = convs_[i](ctx, h, Activation::relu());
  return convs_.back()(ctx, h, Activation::relu(), shortcut);
}

void ResidualBlock::list(Members& m) {
  for (std::size_t i = 0; i < convs_.size(); ++i)
    convs_[i].list(m, "conv" + std::to_string(i + 1), "bn" + std::to_string(i + 1));
  if (downsample_) downsample_->list(m, "downsample.0", "downsample.1");
}

void ResidualBlock::fold_batch_norm(Context& ctx) {
  for (ConvBn& conv : convs_) conv.fold(ctx);
  if (downsample_) downsample_->fold(ctx);
}

ResNet::ResNet(MakeBlock make_block, const std::array<int, 4>& depths, std::int64_t classes)
    : stem_(3, 64, 7, 2),
      stages_(make_stages(make_block, depths)),
      fc_(stages_.back().back().out_channels(), classes) {}

Tensor ResNet::forward(Context& ctx, const Tensor& x) const {
  Tensor h = stem_(ctx, x, Activation::relu());  // [N, 64, H / 2, W / 2]
  h = max_pool2d(ctx, h, {.kernel = {3, 3}, .stride = {2, 2}, .padding = Padding2d::all(1)});  // H / 4
  for (const std::vector<ResidualBlock>& stage : stages_)  // H / 4, H / 8, H / 16, H / 32
    for (const ResidualBlock& block : stage) h = block(ctx, h);
  h = global_avg_pool2d(ctx, h);  // [N, C, 1, 1]
  return fc_(ctx, h.flatten(1));  // [N, classes]
}

void ResNet::list(Members& m) {
  stem_.list(m, "conv1", "bn1");
  for (std::size_t stage = 0; stage < 4; ++stage)
    for (std::size_t i = 0; i < stages_[stage].size(); ++i)
      m.add("layer" + std::to_string(stage + 1) + "." + std::to_string(i), stages_[stage][i]);
  m.add("fc", fc_);
}

void ResNet::fold_batch_norm(Context& ctx) {
  stem_.fold(ctx);
  for (std::vector<ResidualBlock>& stage : stages_)
    for (ResidualBlock& block : stage) block.fold_batch_norm(ctx);
}

ResNet resnet18(std::int64_t classes) { return {&ResidualBlock::basic, {2, 2, 2, 2}, classes}; }

ResNet resnet50(std::int64_t classes) { return {&ResidualBlock::bottleneck, {3, 4, 6, 3}, classes}; }

}  // namespace burin::nn
