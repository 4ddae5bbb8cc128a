// Replays against eager calls, bit for bit: every operator in every dtype, layout and backend that it has,
// and every model, with other values at each replay, in tensors that move. On a GPU.

#include <burin/graph/capture.h>
#include <burin/nn/models/resnet.h>
#include <burin/nn/models/sample_cnn.h>
#include <burin/runtime/random.h>
#include <support/test_support.h>

#include <algorithm>
#include <cstring>
#include <graph/replay_cases.h>
#include <variant>

namespace burin::test {
namespace {

constexpr int kReplays = 1000;

Tensor empty_like(Context& ctx, const Tensor& x) { return empty(ctx, x.shape(), x.dtype(), x.layout()); }

/// Where an input can lie. Each place takes the values over.
class Places {
 public:
  Places(Context& ctx, const Tensor& like)
      : places_{empty_like(ctx, like), empty_like(ctx, like),
                // One element past an allocation's start: kernels cannot read it in wide accesses.
                Tensor(empty(ctx, {like.count() + 1}, like.dtype()).buffer(), like.dtype(), like.shape(),
                       like.strides(), 1)} {
    Context host(Device::cpu(), {.threads = 1});
    places_.push_back(empty_like(host, like));
  }
  std::size_t count() const { return places_.size(); }
  const Tensor& fill(Context& ctx, const Tensor& values, std::size_t place) {
    copy(ctx, places_[place], values);
    return places_[place];
  }

 private:
  std::vector<Tensor> places_;  // two addresses of the device, an unaligned one, and the host
};

Tensor read(Context& ctx, const Tensor& x) { return to(ctx, contiguous(ctx, x), Device::cpu()); }

/// Of tensors on the host, row-major.
bool equal_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

/// Draws the same numbers in every dtype, up to rounding; of integers, whole numbers of both signs.
Tensor draw(Context& ctx, const Tensor& like, std::uint64_t seed, float low, float high) {
  const float scale = is_floating(like.dtype()) ? 1.0f : 100.0f;
  Tensor x = empty_like(ctx, like);
  copy(ctx, x, uniform(ctx, like.shape(), Philox{.seed = seed}, scale * low, scale * high));
  return x;
}

/// Captures the pass, and replays it with inputs of the examples' specs: from two addresses in turn, in
/// place, unaligned and on the host. Fails, with the replay's number, where a result is not the eager one.
void expect_replays_equal(Context& ctx, const Forward& forward, const std::vector<Tensor>& examples,
                          float range = 1) {
  forward(ctx, examples);
  CudaGraph graph = capture(ctx, forward, examples);
  std::vector<Places> places;
  for (const Tensor& example : examples) places.emplace_back(ctx, example);
  std::size_t moves = 0;
  Tensor before;
  int changes = 0;
  const int replays = sweep(kReplays);
  for (int i = 0; i < replays; ++i) {
    const bool in_place = i % 6 == 2;
    if (!in_place) ++moves;
    std::vector<Tensor> values;
    std::vector<Tensor> inputs;
    for (std::size_t k = 0; k < examples.size(); ++k) {
      const auto seed = 1 + static_cast<std::uint64_t>(i) * examples.size() + k;
      values.push_back(draw(ctx, examples[k], seed, -range, range));
      inputs.push_back(places[k].fill(ctx, values[k], (moves + k) % places[k].count()));
    }
    const Tensor eager = read(ctx, forward(ctx, values).at(0));
    if (in_place)
      graph.replay(ctx.stream());
    else
      graph.replay(ctx.stream(), inputs);
    ASSERT_TRUE(equal_bits(read(ctx, graph.outputs().at(0)), eager)) << "replay " << i;
    if (before.defined() && !equal_bits(before, eager)) ++changes;
    before = eager;
  }
  EXPECT_EQ(graph.replays(), static_cast<std::uint64_t>(replays));
  EXPECT_GE(changes, (replays - 1) / 2) << "the results hardly depend on the inputs";
}

/// The operands that vary, or the others.
std::vector<Tensor> draw_operands(Context& ctx, const OpCase& c, DType dtype, Layout layout, bool varying,
                                  std::uint64_t seed) {
  std::vector<Tensor> operands;
  for (const auto& [shape, varies] : c.operands) {
    if (varies != varying) continue;
    const Tensor like = empty(ctx, shape, dtype, shape.rank() == 4 ? layout : Layout::contiguous);
    operands.push_back(draw(ctx, like, ++seed, varies ? -1.0f : 0.25f, 1));  // variances are positive
  }
  return operands;
}

TEST(ReplayCases, HoldEveryOperator) {
  const std::vector<OpCase> cases = replay_cases();
  for (std::size_t index = 0; index < std::variant_size_v<OpParams>; ++index)
    EXPECT_TRUE(
        std::any_of(cases.begin(), cases.end(), [&](const OpCase& c) { return c.params.index() == index; }))
        << "the operator of place " << index << " in the list is never replayed";
}

TEST(ReplayCases, DependOnWhatVaries) {
  Context ctx(Device::cpu(), {.threads = 1});
  for (const OpCase& c : replay_cases())
    for (const DType dtype : c.dtypes)
      for (const Layout layout : c.layouts) {
        std::vector<Tensor> results;
        for (const std::uint64_t seed : {1, 100}) {
          std::vector<Tensor> operands = draw_operands(ctx, c, dtype, layout, true, seed);
          for (const Tensor& weight : draw_operands(ctx, c, dtype, layout, false, 1000))
            operands.push_back(weight);
          results.push_back(contiguous(ctx, burin::run(ctx, c.params, operands)));
        }
        EXPECT_FALSE(equal_bits(results[0], results[1])) << c.name << " " << name(dtype);
      }
}

class ReplayOf : public ::testing::TestWithParam<OpCase> {
 protected:
  void SetUp() override {
    if (const std::string reason = unavailable({Backend::cuda}); !reason.empty()) GTEST_SKIP() << reason;
  }
  /// False if the backend cannot serve this.
  bool run(Backend backend, DType dtype, Layout layout) {
    Context ctx(Device::cuda(0), {.threads = 1});
    ctx.prefer(backend);
    const OpCase& c = GetParam();
    const std::vector<Tensor> inputs = draw_operands(ctx, c, dtype, layout, true, 1'000'000);
    const std::vector<Tensor> weights = draw_operands(ctx, c, dtype, layout, false, 2'000'000);
    const Forward forward = [&](Context& at, std::span<const Tensor> given) {
      std::vector<Tensor> operands(given.begin(), given.end());
      operands.insert(operands.end(), weights.begin(), weights.end());
      return std::vector<Tensor>{burin::run(at, c.params, operands)};
    };
    try {
      forward(ctx, inputs);
    } catch (const UnsupportedError&) {
      return false;
    }
    expect_replays_equal(ctx, forward, inputs);
    return true;
  }
};

TEST_P(ReplayOf, EqualsEager) {
  const OpCase& c = GetParam();
  std::vector<Backend> backends = {Backend::automatic};  // Burin's own kernels, where there is no library
  if (c.library != Backend::automatic) backends.insert(backends.end(), {Backend::cuda, c.library});
  for (const Backend backend : backends) {
    int served = 0;
    for (const DType dtype : c.dtypes)
      for (const Layout layout : c.layouts) {
        const ::testing::ScopedTrace trace(
            __FILE__, __LINE__,
            fmt::format("{} {} {}", name(backend), name(dtype),
                        layout == Layout::channels_last ? "channels-last" : "contiguous"));
        served += run(backend, dtype, layout) ? 1 : 0;
        if (HasFatalFailure()) return;
      }
    const bool is_forced_library = backend != Backend::automatic && backend == c.library;
    EXPECT_GE(served, is_forced_library ? 1 : static_cast<int>(c.dtypes.size() * c.layouts.size()))
        << name(backend);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReplayOf, ::testing::ValuesIn(replay_cases()),
                         [](const auto& of) { return of.param.name; });

class ReplayOfModel : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (const std::string reason = unavailable({Backend::cuda}); !reason.empty()) GTEST_SKIP() << reason;
  }
  template <class Model>
  void expect_equal(Model model, const Shape& input, Layout layout) {
    Context ctx(Device::cuda(0), {.threads = 1});
    model.init(ctx, 1);
    model.to(ctx, GetParam());
    model.to(ctx, layout);
    const Forward forward = [&](Context& at, std::span<const Tensor> inputs) {
      return std::vector<Tensor>{model(at, inputs[0])};
    };
    // Small enough that no sum overflows in f16.
    expect_replays_equal(ctx, forward, {empty(ctx, input, GetParam(), layout)}, 0.25f);
  }
};

TEST_P(ReplayOfModel, SampleCnnEqualsEager) {
  expect_equal(nn::SampleCnn(), {10, 1, 28, 28}, Layout::contiguous);
}

TEST_P(ReplayOfModel, ResNet18EqualsEager) {
  expect_equal(nn::resnet18(), {2, 3, 64, 64}, Layout::contiguous);
  expect_equal(nn::resnet18(), {2, 3, 64, 64}, Layout::channels_last);
}

TEST_P(ReplayOfModel, ResNet50EqualsEager) {
  expect_equal(nn::resnet50(), {2, 3, 64, 64}, Layout::contiguous);
  expect_equal(nn::resnet50(), {2, 3, 64, 64}, Layout::channels_last);
}

INSTANTIATE_TEST_SUITE_P(All, ReplayOfModel, ::testing::Values(DType::f32, DType::f16),
                         [](const auto& of) { return std::string(name(of.param)); });

}  // namespace
}  // namespace burin::test
