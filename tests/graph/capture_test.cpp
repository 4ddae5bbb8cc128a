// capture(): its warm-up, and the inputs and outputs of what it makes.

#include <burin/graph/executor.h>
#include <burin/runtime/memory/adaptors.h>
#include <burin/runtime/name_scope.h>
#include <support/graph_fixture.h>

#include <array>
#include <cstddef>
#include <span>

namespace burin::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Inputs = std::span<const Tensor>;

/// y = 2 x + 1, then z = y + x: kernels of Burin's own.
std::vector<Tensor> visible(Context& ctx, Inputs inputs) {
  return {sum2(ctx, affine(ctx, inputs[0], 2, 1), inputs[0])};
}
/// The same, with a copy of x between by what hides its addresses.
std::vector<Tensor> concealed(Context& ctx, Inputs inputs) {
  return {sum2(ctx, affine(ctx, hidden(ctx, inputs[0]), 2, 1), inputs[0])};
}
constexpr float result_of(float x) { return 3 * x + 1; }

class Captures : public OnGraphs {};

TEST_F(Captures, ReplayWithTheInputsTheyWereMadeWith) {
  Context ctx = make_context();
  Tensor x = filled(ctx, 2);
  for (const Forward& forward : {Forward(visible), Forward(concealed)}) {
    CudaGraph graph = capture(ctx, forward, {x});
    ASSERT_THAT(graph.inputs(), ElementsAre(x.spec()));
    ASSERT_THAT(graph.outputs(), SizeIs(1));
    EXPECT_EQ(graph.replays(), 0u);
    graph.replay(ctx.stream());
    EXPECT_EQ(value_of(ctx, graph.outputs()[0]), result_of(2));
    affine_into(ctx, x, x, 0, 5);  // in place
    graph.replay(ctx.stream());
    EXPECT_EQ(value_of(ctx, graph.outputs()[0]), result_of(5));
    affine_into(ctx, x, x, 0, 2);
    EXPECT_EQ(graph.replays(), 2u);
  }
  EXPECT_THAT(warnings(), IsEmpty());
}

TEST_F(Captures, G7_OtherInputsAreReadAndFreedOnesAreHeld) {
  Context ctx = make_context();
  for (const Forward& forward : {Forward(visible), Forward(concealed)}) {
    Tensor a = filled(ctx, 2);
    CudaGraph graph = capture(ctx, forward, {a});
    Tensor b = filled(ctx, 7);
    graph.replay(ctx.stream(), std::array{b});
    EXPECT_EQ(value_of(ctx, graph.outputs()[0]), result_of(7));
    b = Tensor();  // the graph holds it: it is the input of the next replay
    for (int i = 0; i < 8; ++i) filled(ctx, -1);
    graph.replay(ctx.stream());
    EXPECT_EQ(value_of(ctx, graph.outputs()[0]), result_of(7));
    graph.replay(ctx.stream(), std::array{a});
    a = Tensor();
    for (int i = 0; i < 8; ++i) filled(ctx, -1);
    graph.replay(ctx.stream());
    EXPECT_EQ(value_of(ctx, graph.outputs()[0]), result_of(2));
  }
}

TEST_F(Captures, InputsMayAlternateBetweenTwoAddresses) {
  Context ctx = make_context();
  const Tensor a = filled(ctx, 2);
  const Tensor b = filled(ctx, 7);
  for (const Forward& forward : {Forward(visible), Forward(concealed)}) {
    CudaGraph graph = capture(ctx, forward, {a});
    std::vector<Tensor> results;
    int wrong = 0;
    for (int i = 0; i < 1000; ++i) {
      graph.replay(ctx.stream(), std::array{i % 2 == 0 ? a : b});
      results.push_back(affine(ctx, graph.outputs()[0], 1, 0));
    }
    for (std::size_t i = 0; i < results.size(); ++i)
      wrong += value_of(ctx, results[i]) != result_of(i % 2 == 0 ? 2 : 7);
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(graph.replays(), 1000u);
  }
}

TEST_F(Captures, InputsMayLieAnywhereInABuffer) {
  Context ctx = make_context();
  std::vector<float> values(64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Tensor all = vector_of(ctx, values);
  for (const Forward& forward : {Forward(visible), Forward(concealed)}) {
    CudaGraph graph = capture(ctx, forward, {all.slice(0, 0, 8)});
    for (std::int64_t begin = 0; begin < 16; ++begin) {  // 0, 4, 8, ... bytes off an aligned address
      graph.replay(ctx.stream(), std::array{all.slice(0, begin, begin + 8)});
      std::vector<float> expected;
      for (std::int64_t i = begin; i < begin + 8; ++i) expected.push_back(result_of(static_cast<float>(i)));
      EXPECT_EQ(to_vector<float>(ctx, graph.outputs()[0]), expected) << "from element " << begin;
    }
  }
}

TEST_F(Captures, InputsMayBeOnTheHost) {
  Context ctx = make_context();
  Context cpu;
  for (const Forward& forward : {Forward(visible), Forward(concealed)}) {
    CudaGraph graph = capture(ctx, forward, {filled(cpu, 4)});
    EXPECT_EQ(graph.inputs().at(0).device, Device::cuda(0));
    graph.replay(ctx.stream());
    EXPECT_EQ(value_of(ctx, graph.outputs()[0]), result_of(4));
    Tensor host = filled(cpu, 9);
    graph.replay(ctx.stream(), std::array{host});
    host.data<float>()[0] = host.data<float>()[1] = 1;  // pageable memory may be used again at once
    EXPECT_EQ(value_of(ctx, graph.outputs()[0]), result_of(9));
    Tensor pinned = empty_pinned(ctx, {4});
    for (int i = 0; i < 4; ++i) pinned.data<float>()[i] = 3;
    graph.replay(ctx.stream(), std::array{pinned});
    pinned = Tensor();
    EXPECT_EQ(value_of(ctx, graph.outputs()[0]), result_of(3));
  }
}

TEST_F(Captures, InputsMayHaveOtherStrides) {
  if (fake()) GTEST_SKIP() << "copies between strides are kernels, which the fake device lacks";
  Context ctx = make_context();
  std::vector<float> values(12);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Tensor x = vector_of(ctx, values).reshape({3, 4});
  for (const Forward& forward : {Forward(visible), Forward(concealed)}) {
    CudaGraph graph = capture(ctx, forward, {x.transpose(0, 1)});
    const auto expect_right = [&](const Tensor& given) {
      graph.replay(ctx.stream(), std::array{given});
      std::vector<float> expected = to_vector<float>(ctx, given);
      for (float& value : expected) value = result_of(value);
      EXPECT_EQ(to_vector<float>(ctx, graph.outputs()[0]), expected);
    };
    expect_right(x.transpose(0, 1));
    expect_right(contiguous(ctx, x.transpose(0, 1)));
    expect_right(x.slice(0, 0, 1).reshape({4, 1}).expand(Shape({4, 3})));
    expect_right(x.slice(1, 0, 3).slice(0, 0, 1).expand(Shape({4, 3})));
  }
}

TEST_F(Captures, InputsThatDoNotFitAreRefusedByNameAndNothingRuns) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 2);
  CudaGraph graph = capture(ctx, [](Context& c, Inputs in) { return std::vector{sum2(c, in[0], in[1])}; },
                            {x, x}, {.names = {"image", "mask"}});
  graph.replay(ctx.stream());
  const Tensor& y = graph.outputs()[0];
  affine_into(ctx, const_cast<Tensor&>(y), y, 0, -1);
  const Tensor other = filled(ctx, 100);
  const auto refused = [&]<class Exception>(std::type_identity<Exception>, std::vector<Tensor> inputs,
                                            const std::string& piece) {
    expect_error<Exception>([&] { graph.replay(ctx.stream(), inputs); }, piece);
    EXPECT_EQ(graph.replays(), 1u);
    EXPECT_EQ(value_of(ctx, y), -1) << "something ran";
  };
  constexpr std::type_identity<ShapeError> kShape;
  refused(kShape, {other}, "2 inputs were captured and 1 given");
  refused(kShape, {}, "2 inputs were captured and 0 given");
  refused(kShape, {other, other, other}, "2 inputs were captured and 3 given");
  refused(kShape, {other, Tensor()}, "mask is undefined");
  refused(kShape, {filled(ctx, 1, 5), other}, "image must have shape [4]");
  refused(kShape, {other, other.slice(0, 0, 3)}, "mask must have shape [4], as captured, and has [3]");
  refused(kShape, {other, other.reshape({2, 2})}, "mask must have shape [4], as captured, and has [2, 2]");
  refused(kShape, {other, other.reshape({1, 4})}, "mask must have shape [4], as captured, and has [1, 4]");
  refused(std::type_identity<DTypeError>(), {empty(ctx, {4}, DType::i32), other}, "image must be f32");
  if (cuda_availability().count > 1) {
    Context second = OnCuda::make_context(nullptr, 1);
    refused(std::type_identity<DeviceError>(), {other, empty(second, {4})}, "mask must be on cuda:0");
  }
  graph.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, graph.outputs()[0]), 4) << "the inputs are those of before";
  graph.replay(ctx.stream(), std::array{other, x});
  EXPECT_EQ(value_of(ctx, graph.outputs()[0]), 102);
}

TEST_F(Captures, ARefusedReplayLeavesTheInputsOfBefore) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 2);
  const Tensor other = filled(ctx, 100);
  CudaGraph graph = capture(ctx, visible, {x});
  CudaGraph recording;
  recording.capture_begin(ctx);
  expect_error<CaptureError>([&] { graph.replay(ctx.stream(), std::array{other}); }, "is being captured");
  recording.reset();
  graph.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, graph.outputs()[0]), result_of(2));
  const Stream cpu(Device::cpu());
  EXPECT_THROW(graph.replay(cpu, std::array{other}), Error);
  graph.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, graph.outputs()[0]), result_of(2));
}

TEST_F(Captures, OneTensorMayServeForTwoInputsAndInputsMayExchangePlaces) {
  Context ctx = make_context();
  const Tensor a = filled(ctx, 1);
  const Tensor b = filled(ctx, 10);
  CudaGraph graph = capture(
      ctx, [](Context& c, Inputs in) { return std::vector{sum2(c, affine(c, in[0], 2, 0), in[1])}; }, {a, b});
  const auto result = [&](const Tensor& first, const Tensor& second) {
    graph.replay(ctx.stream(), std::array{first, second});
    return value_of(ctx, graph.outputs()[0]);
  };
  EXPECT_EQ(result(a, b), 12);
  EXPECT_EQ(result(b, a), 21);
  EXPECT_EQ(result(b, b), 30);
  EXPECT_EQ(result(a, b), 12);
}

TEST_F(Captures, ResultsOfOneGraphMayBeInputsOfTheNext) {
  Context ctx = make_context();
  const CaptureOptions shared{.pool = make_graph_pool(ctx)};
  CudaGraph first = capture(ctx, visible, {filled(ctx, 1)}, shared);
  CudaGraph second = capture(ctx, visible, {first.outputs()[0]}, shared);
  const Tensor fed = first.outputs()[0];
  for (const float x : {1.0f, 4.0f}) {
    first.replay(ctx.stream(), std::array{filled(ctx, x)});
    second.replay(ctx.stream(), std::array{fed});
    EXPECT_EQ(value_of(ctx, second.outputs()[0]), result_of(result_of(x)));
  }
}

TEST_F(Captures, ResultsOfAGraphMayBeItsOwnInputs) {
  Context ctx = make_context();
  const auto forward = [](Context& c, Inputs in) {
    const Tensor twice = affine(c, in[0], 2, 0);
    return std::vector{twice, sum2(c, in[0], twice)};
  };
  CudaGraph graph = capture(ctx, forward, {filled(ctx, 1)});
  graph.replay(ctx.stream());
  const Tensor twice = graph.outputs()[0];
  for (float x = 2; x < 20; x *= 2) {
    graph.replay(ctx.stream(), std::array{twice});
    EXPECT_EQ(value_of(ctx, graph.outputs()[0]), 2 * x);
    EXPECT_EQ(value_of(ctx, graph.outputs()[1]), 3 * x) << "the input was overwritten before it was read";
  }
  GraphExecutor executor(ctx, forward);
  std::vector<Tensor> results = executor.run(std::array{filled(ctx, 1)});
  for (float x = 2; x < 20; x *= 2) {
    results = executor.run(std::span(&results[0], 1));
    EXPECT_EQ(value_of(ctx, results[0]), 2 * x);
    EXPECT_EQ(value_of(ctx, results[1]), 3 * x);
  }
}

TEST_F(Captures, InputsOnTheHostAreReadAgainAtEveryReplay) {
  Context ctx = make_context();
  Context cpu;
  Tensor host = filled(cpu, 1);
  const auto same = [](Context& c, Inputs in) { return std::vector{affine(c, in[0], 1, 0)}; };
  CudaGraph graph = capture(ctx, same, {host});
  for (const float value : {9.0f, 10.0f}) {
    affine_into(cpu, host, host, 0, value);
    graph.replay(ctx.stream());
    EXPECT_EQ(value_of(ctx, graph.outputs()[0]), value);
  }
}

TEST_F(Captures, WorkOnASecondStreamIsRefusedAndRunsEagerlyInAnExecutor) {
  Context ctx = make_context();
  Context side = make_context();
  const Tensor weight = filled(ctx, 100);
  const Forward pass = [&](Context& c, Inputs in) {
    const Tensor first = affine(c, weight, 1, 0);
    side.stream().wait(c.stream());
    const Tensor there = affine(side, in[0], 1, 0);
    const Tensor here = affine(c, first, 1, 0);
    c.stream().wait(side.stream());
    there.record_use(c.stream());
    return std::vector{sum2(c, here, there)};
  };
  expect_error<CaptureError>([&] { capture(ctx, pass, {filled(ctx, 1)}); }, "more than one stream");
  GraphExecutor executor(ctx, pass);
  for (const float x : {7.0f, 8.0f}) EXPECT_EQ(value_of(ctx, executor.run(filled(ctx, x))), 100 + x);
  EXPECT_EQ(executor.report().eager_runs, 2u);
}

TEST_F(Captures, OutputsMayBeInputsViewsOrTheSameTwice) {
  Context ctx = make_context();
  Tensor weight = filled(ctx, 6);
  CudaGraph graph = capture(ctx,
                            [&](Context& c, Inputs in) {
                              const Tensor y = affine(c, in[0], 2, 0);
                              return std::vector{in[0], y, y.slice(0, 1, 3), y, weight};
                            },
                            {filled(ctx, 1)});
  for (const float x : {1.0f, 5.0f}) {
    const Tensor given = filled(ctx, x);
    graph.replay(ctx.stream(), std::array{given});
    const std::vector<Tensor>& outputs = graph.outputs();
    ASSERT_THAT(outputs, SizeIs(5));
    EXPECT_EQ(value_of(ctx, outputs[0]), x);
    EXPECT_EQ(value_of(ctx, outputs[1]), 2 * x);
    EXPECT_EQ(value_of(ctx, outputs[2]), 2 * x);
    EXPECT_EQ(outputs[2].shape(), Shape({2}));
    EXPECT_EQ(value_of(ctx, outputs[3]), 2 * x);
    EXPECT_EQ(value_of(ctx, outputs[4]), 6);
    EXPECT_FALSE(may_overlap(outputs[0], given)) << "outputs lie in memory of their own";
    EXPECT_FALSE(may_overlap(outputs[4], weight));
  }
}

TEST_F(Captures, TensorsFromOutsideAreReadWhereTheyAre) {
  Context ctx = make_context();
  Tensor weight = filled(ctx, 6);
  CudaGraph graph = capture(ctx, [&](Context& c, Inputs in) { return std::vector{sum2(c, in[0], weight)}; },
                            {filled(ctx, 1)});
  affine_into(ctx, weight, weight, 0, 8);
  graph.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, graph.outputs()[0]), 9);
  weight = Tensor();
  for (int i = 0; i < 8; ++i) filled(ctx, -1);
  graph.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, graph.outputs()[0]), 9);
}

TEST_F(Captures, NoTensorsAndEmptyTensorsAreAllRight) {
  Context ctx = make_context();
  const Tensor weight = filled(ctx, 6);
  CudaGraph no_inputs =
      capture(ctx, [&](Context& c, Inputs) { return std::vector{affine(c, weight, 2, 0)}; });
  no_inputs.replay(ctx.stream());
  no_inputs.replay(ctx.stream(), {});
  EXPECT_EQ(value_of(ctx, no_inputs.outputs()[0]), 12);
  CudaGraph no_outputs = capture(ctx,
                                 [](Context& c, Inputs in) {
                                   affine(c, in[0], 2, 0);
                                   return std::vector<Tensor>();
                                 },
                                 {weight});
  no_outputs.replay(ctx.stream());
  EXPECT_THAT(no_outputs.outputs(), IsEmpty());
  EXPECT_THAT(warnings(), IsEmpty());
  CudaGraph no_elements = capture(ctx, visible, {empty(ctx, {0})});
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("empty")));
  no_elements.replay(ctx.stream());
  no_elements.replay(ctx.stream(), std::array{empty(ctx, {0})});
  EXPECT_EQ(no_elements.outputs()[0].shape(), Shape({0}));
}

TEST_F(Captures, RefuseWhatCannotBeCaptured) {
  Context ctx = make_context();
  Context cpu;
  const Tensor x = filled(ctx, 1);
  expect_error<CaptureError>([&] { capture(cpu, visible, {filled(cpu, 1)}); }, "CPU");
  expect_error<CaptureError>(
      [&] {
        capture(ctx, visible, {x}, {.names = {"a", "b"}});
      },
      "1 inputs and 2 names");
  expect_error<ShapeError>([&] { capture(ctx, visible, {Tensor()}, {.names = {"image"}}); },
                           "image is undefined");
  expect_error<CaptureError>(
      [&] { capture(ctx, [](Context&, Inputs) { return std::vector<Tensor>(1); }, {x}); },
      "output 0 of the callable is undefined");
  int runs = 0;
  const auto changing = [&](Context& c, Inputs in) {
    return std::vector<Tensor>(++runs <= 2 ? 1 : 2, affine(c, in[0], 2, 0));
  };
  expect_error<CaptureError>([&] { capture(ctx, changing, {x}); }, "returned");
  expect_usable(ctx);
}

// Warm-up.

TEST_F(Captures, G10_WarmUpRunsUntilNothingIsAllocated) {
  Context ctx = make_context();
  constexpr std::int64_t kLarge = std::int64_t{1} << 20;  // 4 MiB: more than is left of a mapping
  std::vector<Tensor> caches;
  int runs = 0;
  const auto forward = [&](Context& c, Inputs in) {
    ++runs;
    if (caches.size() < 2) caches.push_back(empty(c, {kLarge}));
    return std::vector{affine(c, in[0], 2, 0)};
  };
  CudaGraph graph = capture(ctx, forward, {filled(ctx, 1)});
  EXPECT_GE(runs, 4) << "two that allocate, one that does not, and the recorded one";
  EXPECT_LE(runs, 5);
  graph.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, graph.outputs()[0]), 2);
  runs = 0;
  EXPECT_EQ(warm_up(ctx, forward, std::array{filled(ctx, 1)}), runs);
  EXPECT_LE(runs, 2);
}

TEST_F(Captures, WarmUpNamesWhatNeverSettles) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1);
  std::vector<Tensor> hoard;
  int runs = 0;
  const auto growing = [&](Context& c, Inputs in) {
    ++runs;
    const NameScope scope(c, "layer3.cache");
    hoard.push_back(affine(c, in[0], 2, 0));
    return std::vector{hoard.back()};
  };
  const Tensor large = filled(ctx, 1, std::int64_t{1} << 20);
  const std::size_t before = trimmed_bytes();
  expect_error<CaptureError>([&] { capture(ctx, growing, {large}, {.most_warm_ups = 4}); }, "bytes");
  EXPECT_EQ(runs, 4);
  hoard.clear();
  EXPECT_EQ(trimmed_bytes(), before);

  const auto waiting = [&](Context& c, Inputs in) {
    const NameScope scope(c, "layer7.gate");
    const Tensor y = affine(c, in[0], 2, 0);
    to(c, y, Device::cpu());
    return std::vector{y};
  };
  for (const char* piece : {"copy", "layer7.gate", "wait", "cudaStreamSynchronize"})
    expect_error<CaptureError>([&] { capture(ctx, waiting, {x}); }, piece);
  const auto asking = [&](Context& c, Inputs in) {
    const Tensor y = affine(c, in[0], 2, 0);
    (void)c.stream().is_idle();
    return std::vector{y};
  };
  expect_error<CaptureError>([&] { capture(ctx, asking, {x}); }, "cudaStreamQuery");
  expect_usable(ctx);
  CudaGraph graph = capture(ctx, visible, {x});
  graph.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, graph.outputs()[0]), result_of(1));
}

TEST_F(Captures, WhatTheCallableThrowsArrivesAndNothingIsLeft) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1);
  const std::shared_ptr<MemoryResource> memory = ctx.memory();
  struct Custom {
    int run;
  };
  const std::size_t before = trimmed_bytes();
  for (int fails_in = 1; fails_in <= 4; ++fails_in) {
    int run = 0;
    const auto forward = [&](Context& c, Inputs in) {
      Tensor y = affine(c, in[0], 2, 0);
      if (++run == fails_in) throw Custom{run};
      return std::vector{affine(c, y, 2, 0)};
    };
    try {
      CudaGraph graph = capture(ctx, forward, {x});
      EXPECT_LT(run, fails_in);
    } catch (const Custom& error) {
      EXPECT_EQ(error.run, fails_in);
    }
    EXPECT_EQ(ctx.memory(), memory);
    expect_usable(ctx);
    EXPECT_EQ(trimmed_bytes(), before) << "failed in run " << fails_in;
  }
}

TEST_F(Captures, MemoryOfOtherStreamsDoesNotMoveTheOutputs) {
  Context ctx = make_context();
  const Stream side(Device::cuda());
  CudaGraph graph = capture(ctx,
                            [&](Context& c, Inputs in) {
                              if (is_capturing(c))
                                c.memory()->deallocate(c.memory()->allocate(16, side), 16, side);
                              return visible(c, in);
                            },
                            {filled(ctx, 1)});
  for (const GraphNode& node : graph.nodes()) EXPECT_EQ(node.kind, GraphNode::Kind::kernel) << "a copy";
  graph.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, graph.outputs()[0]), result_of(1));
}

TEST_F(Captures, StandOnAdaptorsOfACachingPool) {
  const auto counting = std::make_shared<CountingResource>(pool());
  Context ctx = make_context(counting);
  {
    CudaGraph graph = capture(ctx, visible, {filled(ctx, 1)});
    EXPECT_EQ(ctx.memory(), counting);
    graph.replay(ctx.stream(), std::array{filled(ctx, 3)});
    EXPECT_EQ(value_of(ctx, graph.outputs()[0]), result_of(3));
  }
  EXPECT_EQ(counting->counts().live_blocks, 0u);
  Context foreign = make_context(make_cuda_resource(0));
  expect_error<CaptureError>([&] { capture(foreign, visible, {filled(foreign, 1)}); }, "CachingPool");
  expect_error<CaptureError>([&] { make_graph_pool(foreign); }, "CachingPool");
}

}  // namespace
}  // namespace burin::test
