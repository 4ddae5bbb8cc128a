#include <burin/nn/conv_bn.h>
#include <burin/nn/layers.h>
#include <burin/nn/models/resnet.h>
#include <burin/nn/models/sample_cnn.h>
#include <burin/nn/sequential.h>
#include <burin/runtime/name_scope.h>
#include <burin/runtime/random.h>
#include <burin/runtime/stream_state.h>
#include <support/test_support.h>

#include <cmath>
#include <set>
#include <thread>

#include <gmock/gmock.h>

namespace burin::test {
namespace {

using nn::Conv2d;
using nn::Linear;
using nn::Sequential;
using nn::StateDict;
using nn::StateDictError;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names_of(const std::vector<std::pair<std::string, Tensor>>& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

Sequential small_net() {
  return Sequential(Conv2d(2, 3, 3), nn::BatchNorm2d(3), nn::ReLU(),
                    Sequential(nn::MaxPool2d(2), nn::Flatten()), nn::Dropout(), Linear(12, 4));
}

class Module : public ::testing::Test {
 protected:
  StateDict state_of_small_net() {
    Sequential net = small_net();
    net.init(ctx_, 7);
    return net.state_dict();
  }
  Context ctx_;
};

TEST_F(Module, NamesFollowPyTorch) {
  const Sequential net = small_net();
  EXPECT_THAT(names_of(net.named_parameters()),
              ElementsAre("0.weight", "0.bias", "1.weight", "1.bias", "5.weight", "5.bias"));
  EXPECT_THAT(names_of(net.named_buffers()), ElementsAre("1.running_mean", "1.running_var"));
  std::vector<std::string> modules;
  for (const auto& [name, module] : net.named_modules()) modules.push_back(name);
  EXPECT_THAT(modules, ElementsAre("0", "1", "2", "3", "3.0", "3.1", "4", "5"));
  EXPECT_EQ(net.parameter_count(), 54 + 3 + 6 + 48 + 4);
  EXPECT_THAT(names_of(Conv2d(2, 3, 3, {.bias = false}).named_parameters()), ElementsAre("weight"));
  EXPECT_THAT(
      names_of(nn::SampleCnn().named_parameters()),
      ElementsAre("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc.weight", "fc.bias"));
  EXPECT_EQ(nn::SampleCnn().parameter_count(), 34'826);
}

TEST_F(Module, ResNetsHaveTorchvisionsParameters) {
  const nn::ResNet small = nn::resnet18();
  EXPECT_EQ(small.parameter_count(), 11'689'512);
  EXPECT_EQ(small.named_parameters().size(), 62u);
  EXPECT_EQ(small.named_buffers().size(), 40u);
  const nn::ResNet large = nn::resnet50(10);
  EXPECT_EQ(large.parameter_count(), 25'557'032 - 990 * 2049);
  const std::vector<std::string> names = names_of(large.named_parameters());
  EXPECT_EQ(names.size(), 161u);
  EXPECT_THAT(std::vector(names.begin(), names.begin() + 6),
              ElementsAre("conv1.weight", "bn1.weight", "bn1.bias", "layer1.0.conv1.weight",
                          "layer1.0.bn1.weight", "layer1.0.bn1.bias"));
  for (const std::string name : {"layer1.0.downsample.0.weight", "layer1.0.downsample.1.bias",
                                 "layer4.2.bn3.weight", "layer3.5.conv2.weight", "fc.bias"})
    EXPECT_THAT(names, ::testing::Contains(name));
  EXPECT_THAT(names, ::testing::Not(::testing::Contains("layer2.1.downsample.0.weight")));
}

TEST_F(Module, LoadListsEveryNameThatDoesNotFit) {
  StateDict state = state_of_small_net();
  state.erase("0.bias");
  state.erase("1.running_var");
  state["extra.weight"] = zeros(ctx_, {1});
  state["5.weight"] = zeros(ctx_, {4, 13});
  state["5.bias"] = zeros(ctx_, {4}, DType::i32);
  state["1.num_batches_tracked"] = zeros(ctx_, {}, DType::i64);
  Sequential net = small_net();
  for (const bool strict : {true, false}) {
    try {
      net.load_state_dict(ctx_, state, strict);
      FAIL() << "nothing was thrown";
    } catch (const StateDictError& e) {
      EXPECT_THAT(e.names().missing, ElementsAre("0.bias", "1.running_var"));
      EXPECT_THAT(e.names().unexpected, ElementsAre("extra.weight"));
      EXPECT_THAT(e.names().mismatched, ElementsAre("5.weight", "5.bias"));
      EXPECT_EQ(std::string(e.what()),
                std::string("load_state_dict: ") +
                    (strict ? "2 missing (0.bias, 1.running_var); 1 unexpected (extra.weight); " : "") +
                    "2 that do not fit (5.weight: f32 [4, 13] given, [4, 12] wanted, "
                    "5.bias: i32 [4] given, [4] wanted)");
    }
    EXPECT_TRUE(net.state_dict().empty()) << "a failed load must change nothing";
  }
}

TEST_F(Module, LoadsWhatFits) {
  StateDict state = state_of_small_net();
  state["1.num_batches_tracked"] = zeros(ctx_, {}, DType::i64);
  Sequential net = small_net();
  net.load_state_dict(ctx_, state);
  EXPECT_EQ(net.state_dict().size(), 8u);
  state.erase("0.bias");
  state["more"] = zeros(ctx_, {1});
  Sequential part = small_net();
  part.load_state_dict(ctx_, state, false);
  EXPECT_EQ(part.state_dict().size(), 7u);
  struct File {
    StateDict all() const { return tensors; }
    StateDict tensors;
  };
  net.load_state_dict(ctx_, File{state_of_small_net()});
}

TEST_F(Module, KeepsTheDTypeItLoads) {
  StateDict state = state_of_small_net();
  for (auto& [name, tensor] : state) tensor = to(ctx_, tensor, DType::f16);
  Sequential net = small_net();
  net.load_state_dict(ctx_, state);
  EXPECT_EQ(net.state_dict().at("0.weight").dtype(), DType::f16);
  net.to(ctx_, DType::f32);
  EXPECT_EQ(net.state_dict().at("1.running_mean").dtype(), DType::f32);
}

TEST_F(Module, RunsOnlyWithValues) {
  Sequential net = small_net();
  const Tensor x = zeros(ctx_, {1, 2, 6, 6});
  try {
    net(ctx_, x);
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("Conv2d: weight [3, 2, 3, 3] has no value"));
  }
  net.init(ctx_, 1);
  EXPECT_EQ(net(ctx_, x).shape(), Shape({1, 4}));
}

TEST_F(Module, CopiesAreIndependentAndMovesKeepTheNames) {
  Sequential net = small_net();
  net.init(ctx_, 1);
  const std::vector<float> before = to_vector<float>(ctx_, net.state_dict().at("0.weight"));
  Sequential copy = net;
  EXPECT_EQ(copy.state_dict().at("0.weight").raw(), net.state_dict().at("0.weight").raw())
      << "memory is shared";
  copy.init(ctx_, 2);
  EXPECT_EQ(to_vector<float>(ctx_, net.state_dict().at("0.weight")), before);
  EXPECT_NE(to_vector<float>(ctx_, copy.state_dict().at("0.weight")), before);
  const Sequential moved = std::move(net);
  EXPECT_EQ(to_vector<float>(ctx_, moved.state_dict().at("0.weight")), before);
  copy = moved;
  EXPECT_EQ(to_vector<float>(ctx_, copy.state_dict().at("0.weight")), before);
}

TEST_F(Module, InitIsSeededAndBounded) {
  Conv2d conv(3, 8, {3, 5});
  conv.init(ctx_, 5);
  const std::vector<float> weight = to_vector<float>(ctx_, conv.weight.tensor());
  const float bound = std::sqrt(6.0f / 45.0f);
  const auto [low, high] = std::minmax_element(weight.begin(), weight.end());
  EXPECT_GE(*low, -bound);
  EXPECT_LE(*high, bound);
  EXPECT_LT(*low, -0.9f * bound);
  EXPECT_GT(*high, 0.9f * bound);
  EXPECT_THAT(to_vector<float>(ctx_, conv.bias.tensor()), ::testing::Each(0.0f));
  Conv2d again(3, 8, {3, 5});
  again.init(ctx_, 5);
  EXPECT_EQ(to_vector<float>(ctx_, again.weight.tensor()), weight);
  Sequential two(Linear(4, 4), Linear(4, 4));
  two.init(ctx_, 5);
  EXPECT_NE(to_vector<float>(ctx_, two.state_dict().at("0.weight")),
            to_vector<float>(ctx_, two.state_dict().at("1.weight")));
}

TEST_F(Module, InitOfEmptyParameters) {
  for (Linear layer : {Linear(0, 3), Linear(3, 0)}) {
    layer.init(ctx_, 1);
    const Tensor y = layer(ctx_, zeros(ctx_, {2, layer.weight.shape()[1]}));
    EXPECT_EQ(y.shape(), Shape({2, layer.weight.shape()[0]}));
  }
}

TEST_F(Module, LayoutChangesWeightsOfRank4Only) {
  Sequential net = small_net();
  net.init(ctx_, 1);
  const std::vector<float> before = to_vector<float>(ctx_, net.state_dict().at("0.weight"));
  net.to(ctx_, Layout::channels_last);
  EXPECT_TRUE(net.state_dict().at("0.weight").is_channels_last());
  EXPECT_TRUE(net.state_dict().at("5.weight").is_contiguous());
  EXPECT_EQ(to_vector<float>(ctx_, net.state_dict().at("0.weight")), before);
}

TEST_F(Module, ThreadsShareOneModule) {
  Sequential net = small_net();
  net.init(ctx_, 1);
  const Tensor x = uniform(ctx_, {2, 2, 6, 6}, {.seed = 3});
  const std::vector<float> expected = to_vector<float>(ctx_, net(ctx_, x));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      ContextOptions options;
      options.threads = 1;
      Context own(Device::cpu(), std::move(options));
      for (int round = 0; round < 20; ++round) EXPECT_EQ(to_vector<float>(own, net(own, x)), expected);
    });
  for (std::thread& thread : threads) thread.join();
}

/// Notes the name scope of each allocation.
class ScopeRecorder final : public MemoryResource {
 public:
  void* allocate(std::size_t bytes, StreamView stream) override {
    scopes.insert(stream.share()->scope().path);
    return upstream_->allocate(bytes, stream);
  }
  void deallocate(void* data, std::size_t bytes, StreamView stream) noexcept override {
    upstream_->deallocate(data, bytes, stream);
  }
  Device device() const noexcept override { return upstream_->device(); }
  MemoryKind kind() const noexcept override { return upstream_->kind(); }
  std::set<std::string> scopes;

 private:
  std::shared_ptr<MemoryResource> upstream_ = make_cpu_resource();
};

TEST_F(Module, ForwardPassesAreNamedByTheirMembers) {
  const auto recorder = std::make_shared<ScopeRecorder>();
  ContextOptions options;
  options.memory = recorder;
  Context ctx(Device::cpu(), std::move(options));
  nn::ResNet net(&nn::ResidualBlock::basic, {1, 1, 1, 1}, 10);
  net.init(ctx_, 1);
  const Tensor x = zeros(ctx_, {1, 3, 32, 32});
  const NameScope scope(ctx, "net");
  for (const bool folded : {false, true}) {
    if (folded) net.fold_batch_norm(ctx_);
    recorder->scopes.clear();
    net(ctx, x);
    for (const std::string name : {"net.conv1", "net", "net.layer1.0.conv1", "net.layer2.0.downsample.0",
                                   "net.layer4.0.conv2", "net.fc"})
      EXPECT_TRUE(recorder->scopes.contains(name)) << name;
    EXPECT_EQ(recorder->scopes.contains("net.layer4.0.bn2"), !folded);
    EXPECT_EQ(recorder->scopes.contains("net.bn1"), !folded);
  }
  EXPECT_EQ(ctx.stream().share()->scope().path, "net");
}

TEST_F(Module, LearnsItsNameOnlyWhereItMayBeChanged) {
  Sequential net = small_net();
  const Sequential& shared = net;
  EXPECT_EQ(shared.named_modules().size(), 8u);
  EXPECT_EQ(shared[0].member_name(), "");
  net.init(ctx_, 1);
  EXPECT_EQ(net.member_name(), "");
  EXPECT_EQ(shared[0].member_name(), "0");
  EXPECT_EQ(Sequential(net)[5].member_name(), "5");
}

TEST_F(Module, RefusesImpossibleLayers) {
  EXPECT_THROW(Conv2d(0, 1, 3), ShapeError);
  EXPECT_THROW(Conv2d(1, 1, {3, 0}), ShapeError);
  EXPECT_THROW(Conv2d(4, 6, 3, {.groups = 3}), ShapeError);
  EXPECT_THROW(Conv2d(4, 6, 3, {.groups = 0}), ShapeError);
  Conv2d conv(1, 1, 3);
  EXPECT_THROW(conv.weight.set(zeros(ctx_, {1, 1, 3})), ShapeError);
  EXPECT_THROW(conv.weight.set(Tensor()), ShapeError);
  Conv2d bare(1, 1, 3, {.bias = false});
  EXPECT_THROW(bare.bias.set(zeros(ctx_, {1})), ShapeError);
}

class Layers : public OnEachTarget {};

TEST_P(Layers, FlattenIgnoresTheLayout) {
  const Tensor x = tensor({2, 3, 4, 5}, Random().integers(120, -9, 9));
  const std::vector<double> expected = values(x);
  const Tensor y = nn::Flatten()(ctx(), to(ctx(), x, Layout::channels_last));
  EXPECT_EQ(y.shape(), Shape({2, 60}));
  EXPECT_EQ(values(y), expected);
  EXPECT_EQ(nn::Flatten(2)(ctx(), x).shape(), Shape({2, 3, 20}));
}

TEST_P(Layers, PoolsAndActivationsCallTheirOperators) {
  const Tensor x = tensor({1, 1, 2, 4}, {1, -2, 3, 4, -5, 6, 7, -8});
  EXPECT_EQ(values(nn::MaxPool2d(2)(ctx(), x)), (std::vector<double>{6, 7}));
  EXPECT_EQ(values(nn::AvgPool2d(2)(ctx(), x)), (std::vector<double>{0, 1.5}));
  EXPECT_EQ(values(nn::GlobalAvgPool2d()(ctx(), x)), (std::vector<double>{0.75}));
  EXPECT_EQ(values(nn::ReLU()(ctx(), x)), (std::vector<double>{1, 0, 3, 4, 0, 6, 7, 0}));
  EXPECT_EQ(values(nn::Dropout(0.5)(ctx(), x)), values(x));
}

/// A batch norm of the target's dtype and device with these values.
class Fold : public OnEachTarget {
 protected:
  nn::BatchNorm2d batch_norm_of(const std::vector<double>& gamma, const std::vector<double>& beta,
                                const std::vector<double>& mean, const std::vector<double>& var, float eps) {
    const Shape shape{static_cast<std::int64_t>(gamma.size())};
    nn::BatchNorm2d bn(shape[0], eps);
    bn.weight.set(tensor(shape, gamma));
    bn.bias.set(tensor(shape, beta));
    bn.running_mean.set(tensor(shape, mean));
    bn.running_var.set(tensor(shape, var));
    return bn;
  }
};

TEST_P(Fold, B1_BiasIsShiftedByTheMean) {
  Conv2d conv(1, 1, 1);
  conv.weight.set(tensor({1, 1, 1, 1}, {2}));
  conv.bias.set(tensor({1}, {3}));
  const nn::BatchNorm2d bn = batch_norm_of({4}, {1}, {5}, {3}, 1.0f);
  const Tensor x = tensor({1, 1, 1, 1}, {1});
  EXPECT_EQ(values(bn(ctx(), conv(ctx(), x))), (std::vector<double>{1}));
  nn::fold_batch_norm(ctx(), conv, bn);
  EXPECT_EQ(values(conv.weight.tensor()), (std::vector<double>{4}));
  EXPECT_EQ(values(conv.bias.tensor()), (std::vector<double>{-3}));
  EXPECT_EQ(values(conv(ctx(), x)), (std::vector<double>{1}));
}

TEST_P(Fold, B3_ScalesByOutputChannelOfEachGroup) {
  Conv2d conv(2, 2, {1, 2}, {.groups = 2, .bias = false});
  conv.weight.set(tensor({2, 1, 1, 2}, {1, 10, 5, 7}));
  const nn::BatchNorm2d bn = batch_norm_of({2, 3}, {0, 1}, {0, 0}, {1, 1}, 0.0f);
  nn::fold_batch_norm(ctx(), conv, bn);
  EXPECT_EQ(values(conv.weight.tensor()), (std::vector<double>{2, 20, 15, 21}));
  EXPECT_EQ(values(conv.bias.tensor()), (std::vector<double>{0, 1}));
  EXPECT_EQ(values(conv(ctx(), tensor({1, 2, 1, 2}, {1, 1, 1, 2}))), (std::vector<double>{22, 58}));
}

TEST_P(Fold, RefusesWhatCannotBeFolded) {
  Conv2d conv(2, 3, 1);
  conv.init(ctx(), 1);
  nn::BatchNorm2d other(2);
  other.init(ctx(), 1);
  EXPECT_THROW(nn::fold_batch_norm(ctx(), conv, other), ShapeError);
  EXPECT_THROW(nn::fold_batch_norm(ctx(), conv, nn::BatchNorm2d(3)), Error);
  nn::BatchNorm2d bn(3);
  bn.init(ctx(), 1);
  Conv2d active(2, 3, 1, {.activation = Activation::relu()});
  active.init(ctx(), 1);
  EXPECT_THROW(nn::fold_batch_norm(ctx(), active, bn), Error);
}

const auto kTargets = ::testing::ValuesIn(
    targets({Backend::cpu, Backend::cuda, Backend::cudnn}, {DType::f32, DType::f16, DType::bf16}));
INSTANTIATE_TEST_SUITE_P(All, Layers, kTargets, target_name);
INSTANTIATE_TEST_SUITE_P(All, Fold, kTargets, target_name);

}  // namespace
}  // namespace burin::test
