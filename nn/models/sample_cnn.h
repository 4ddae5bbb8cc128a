#pragma once

#include <burin/nn/layers.h>
#include <burin/runtime/export.h>

namespace burin::nn {

/// A small classifier of digits: [N, 1, 28, 28] to logits [N, 10]. examples/cnn/train.py trains it.
class BURIN_API SampleCnn final : public Module {
 public:
  Tensor forward(Context& ctx, const Tensor& x) const override;
  void list(Members& m) override { m.add("conv1", conv1).add("conv2", conv2).add("fc", fc); }

  Conv2d conv1{1, 32, 3, {.activation = Activation::relu()}};
  Conv2d conv2{32, 64, 3, {.activation = Activation::relu()}};
  Linear fc{1600, 10};
};

}  // namespace burin::nn
