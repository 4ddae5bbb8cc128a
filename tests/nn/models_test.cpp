// Whole networks against logits that PyTorch computed in double precision (tests/data/make_goldens.py).

#include <burin/io/npy.h>
#include <burin/io/safetensors.h>
#include <burin/nn/models/resnet.h>
#include <burin/nn/models/sample_cnn.h>
#include <burin/runtime/random.h>
#include <support/test_support.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace burin::test {
namespace {

/// The largest error as a share of the largest logit.
class Model : public OnEachTarget {
 protected:
  Tensor load(const std::string& name) { return io::load_npy(test_data(name)); }

  void expect_logits(const Tensor& logits, const std::string& golden, double share) {
    const Tensor expected = load(golden);
    ASSERT_EQ(logits.shape(), expected.shape());
    const std::vector<double> want(expected.data<double>(), expected.data<double>() + expected.count());
    const std::vector<double> got = values(logits);
    double scale = 0;
    for (const double value : want) scale = std::max(scale, std::abs(value));
    expect_near(got, want, [&](std::size_t) { return share * scale; });
  }
};

class SampleCnn : public Model {};

TEST_P(SampleCnn, GivesPyTorchsLogits) {
  const double share = dtype() == DType::f32 ? 1e-5 : dtype() == DType::f16 ? 5e-3 : 4e-2;
  nn::SampleCnn model;
  model.load_state_dict(ctx(), io::Safetensors::open(test_data("../../examples/cnn/sample_cnn.safetensors")));
  model.to(ctx(), dtype());
  const Tensor x = to(ctx(), to(ctx(), load("sample_cnn_input.npy"), ctx().device()), dtype());
  for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
    model.to(ctx(), layout);
    expect_logits(model(ctx(), to(ctx(), x, layout)), "sample_cnn_logits.npy", share);
  }
  EXPECT_EQ(model(ctx(), empty(ctx(), {0, 1, 28, 28}, dtype())).shape(), Shape({0, 10}));
}

INSTANTIATE_TEST_SUITE_P(All, SampleCnn,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda, Backend::cudnn},
                                                     {DType::f32, DType::f16, DType::bf16})),
                         target_name);

class ResNet : public Model {
 protected:
  /// The weights that make_goldens.py describes.
  void generate(nn::ResNet& model) {
    const std::map<std::string, std::pair<float, float>> ranges = {{"weight", {0.4f, 0.9f}},
                                                                   {"bias", {-0.2f, 0.2f}},
                                                                   {"running_mean", {-0.2f, 0.2f}},
                                                                   {"running_var", {0.5f, 1.5f}}};
    nn::Members members;
    model.list(members);
    std::map<std::string, nn::Parameter*> sorted(members.parameters().begin(), members.parameters().end());
    std::uint64_t seed = 1000;
    for (const auto& [name, parameter] : sorted) {
      const Shape& shape = parameter->shape();
      auto [low, high] = ranges.at(name.substr(name.rfind('.') + 1));
      if (shape.rank() > 1) {
        high = static_cast<float>(std::sqrt(6.0 / static_cast<double>(shape.count() / shape[0])));
        low = -high;
      } else if (name == "fc.bias") {
        low = -0.1f;
        high = 0.1f;
      }
      parameter->set(uniform(ctx(), shape, {.seed = seed++}, low, high));
    }
  }

  void check(nn::ResNet model, const std::string& golden) {
    generate(model);
    const Tensor x = uniform(ctx(), {2, 3, 64, 64}, {.seed = 1}, -1, 1);
    expect_logits(model(ctx(), x), golden, 1e-4);
    for (const Layout layout : {Layout::channels_last, Layout::contiguous}) {
      SCOPED_TRACE(layout == Layout::contiguous ? "folded, contiguous" : "channels-last");
      model.to(ctx(), layout);
      expect_logits(model(ctx(), to(ctx(), x, layout)), golden, 1e-4);
      model.fold_batch_norm(ctx());
      expect_logits(model(ctx(), to(ctx(), x, layout)), golden, 1e-4);
    }
  }
};

TEST_P(ResNet, Depth18GivesPyTorchsLogits) { check(nn::resnet18(), "resnet18_logits.npy"); }

TEST_P(ResNet, Depth50GivesPyTorchsLogits) { check(nn::resnet50(), "resnet50_logits.npy"); }

INSTANTIATE_TEST_SUITE_P(All, ResNet,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda, Backend::cudnn},
                                                     {DType::f32})),
                         target_name);

}  // namespace
}  // namespace burin::test
