// Draws that a graph repeats: who says where they begin, and what the kernels make of it.

#include <burin/graph/cuda_graph.h>
#include <burin/graph/recording.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/cuda/graph_calls.h>
#include <burin/runtime/memory/caching_pool.h>
#include <burin/runtime/op_observer.h>
#include <burin/runtime/random.h>
#include <burin/runtime/stream_state.h>
#include <support/cuda_fixture.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace burin::test {
namespace {

/// Notes what it is asked for, and gives what it was told to.
struct Source final : OpObserver {
  RandomSource draw(const Generator& generator, std::uint64_t count) override {
    draws.emplace_back(generator.next(), count);
    return answer;
  }
  RandomSource answer;
  std::vector<std::pair<Philox, std::uint64_t>> draws;
};

class RandomCapture : public OnCuda {
 protected:
  /// Records `body`, and drops the capture.
  template <class Body>
  static void capture(Context& ctx, Body&& body) {
    cuda::begin_capture(ctx.stream());
    try {
      body();
    } catch (...) {
      cuda::abandon_capture(ctx.stream());
      throw;
    }
    cuda::abandon_capture(ctx.stream());
  }
  static Context pooled() { return make_context(std::make_shared<CachingPool>(Device::cuda())); }
};

TEST_F(RandomCapture, OfOthersIsRefusedAndCanGoOn) {
  Context ctx = pooled();
  Tensor scratch = empty(ctx, {8});
  Generator generator(3, 1);
  capture(ctx, [&] {
    expect_error<CaptureError>([&] { uniform(ctx, {8}, generator); },
                               "uniform: the stream is being captured");
    expect_error<CaptureError>([&] { normal(ctx, {8}, generator); }, "normal: the stream is being captured");
    Source source;  // that records nothing
    const ObserverScope scope(ctx.stream(), &source);
    EXPECT_THROW(uniform(ctx, {8}, generator), CaptureError);
    EXPECT_EQ(source.draws.size(), 1u);
    cuda::copy_bytes(ctx.stream(), scratch.raw(), scratch.raw(), 4);
    EXPECT_EQ(cuda::capture_tips(ctx.stream()).size(), 1u);
  });
  EXPECT_EQ(generator.next(), (Philox{3, 1}));
}

TEST_F(RandomCapture, OfNothingDrawsNothing) {
  Context ctx = pooled();
  Generator generator(3, 1);
  capture(ctx, [&] {
    Source source;
    const ObserverScope scope(ctx.stream(), &source);
    EXPECT_EQ(uniform(ctx, {2, 0}, generator).count(), 0);
    EXPECT_EQ(normal(ctx, {0}, generator).count(), 0);
    EXPECT_TRUE(source.draws.empty());
    EXPECT_TRUE(cuda::capture_tips(ctx.stream()).empty());
  });
}

TEST_F(RandomCapture, AsksTheObserverOnceAllElseIsRight) {
  const auto memory = std::make_shared<LimitingResource>(std::make_shared<CachingPool>(Device::cuda()), 1024);
  Context ctx = make_context(memory);
  const Tensor state = empty(ctx, {2}, DType::i64);
  Generator generator(3, 1);
  capture(ctx, [&] {
    Source source;
    source.answer = {static_cast<const Philox*>(state.raw()), 0};
    const ObserverScope scope(ctx.stream(), &source);
    EXPECT_THROW(uniform(ctx, {3}, generator, 2, 1), ShapeError);
    EXPECT_THROW(normal(ctx, {3}, generator, 0, 1, DType::i8), DTypeError);
    EXPECT_THROW(normal(ctx, {1000}, generator), OutOfMemory);
    EXPECT_TRUE(source.draws.empty());
    try {
      uniform(ctx, {5, 3}, generator);
      EXPECT_FALSE(fake()) << "the fake device has no such kernel";
    } catch (const CudaError&) {
      EXPECT_TRUE(fake());
    }
    EXPECT_EQ(source.draws, (decltype(source.draws){{Philox{3, 1}, 15}}));
  });
  EXPECT_EQ(generator.next(), (Philox{3, 1}));  // nothing has run
}

TEST_F(RandomCapture, OfBurinsKeepsOnePlaceForEachGenerator) {
  Context ctx = pooled();
  Generator generator(3, 1);
  Generator other(4);
  CudaGraph graph;
  graph.capture_begin(ctx);
  auto& recording = dynamic_cast<detail::Recording&>(*ctx.stream().state().observer());
  const auto first = recording.draw(generator, 5);
  const auto same = recording.draw(Generator(generator), 3);
  const auto apart = recording.draw(other, 1);
  EXPECT_NE(first.state, nullptr);
  EXPECT_EQ(first.drawn, 0u);
  EXPECT_EQ(same.state, first.state);
  EXPECT_EQ(same.drawn, 5u);
  EXPECT_NE(apart.state, first.state);
  EXPECT_EQ(apart.drawn, 0u);
  ASSERT_EQ(recording.random.size(), 2u);
  EXPECT_EQ(recording.random[0].drawn, 8u);
  EXPECT_TRUE(recording.random[0].state.buffer()->is_used_elsewhere()) << "replays use it on this stream";
  EXPECT_TRUE(cuda::capture_tips(ctx.stream()).empty());
  graph.reset();
  EXPECT_EQ(generator.next(), (Philox{3, 1}));
}

class RandomKernels : public RandomCapture {
 protected:
  void SetUp() override {
    RandomCapture::SetUp();
    if (fake()) GTEST_SKIP() << "the fake device has no kernels of Burin's";
  }
};

TEST_F(RandomKernels, ReadTheirPlaceWhenTheyRun) {
  Context ctx = pooled();
  Tensor state = empty(ctx, {2}, DType::i64);
  const auto* place = static_cast<const Philox*>(state.raw());
  const StreamView stream = ctx.stream();
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{1} << 34, ~std::uint64_t{0} - 9}) {
    for (std::uint64_t aligned = 0; aligned < 4; ++aligned) {
      for (const std::uint64_t drawn : {0, 1, 2, 3, 1001}) {
        for (const std::int64_t count : {1, 2, 3, 4, 5, 19, 4099}) {
          const Philox begin{0x123456789abcdef0, offset + aligned};
          const Philox whole{begin.seed, begin.offset + drawn};
          Tensor out = empty(ctx, {count});
          cuda::set_random_state(stream, state.raw(), begin);
          cuda::uniform(stream, DType::f32, out.raw(), count, place, drawn, -1, 2);
          ASSERT_EQ(to_vector<float>(ctx, out), to_vector<float>(ctx, uniform(ctx, {count}, whole, -1, 2)));
          cuda::normal(stream, DType::f32, out.raw(), count, place, drawn, -1, 2);
          ASSERT_EQ(to_vector<float>(ctx, out), to_vector<float>(ctx, normal(ctx, {count}, whole, -1, 2)));
        }
      }
    }
  }
}

TEST_F(RandomKernels, OfOtherTypesReadTheirPlaceToo) {
  Context ctx = pooled();
  Tensor state = empty(ctx, {2}, DType::i64);
  const auto* place = static_cast<const Philox*>(state.raw());
  cuda::set_random_state(ctx.stream(), state.raw(), {5, 6});
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const auto values = [&](const Tensor& x) { return to_vector<float>(ctx, to(ctx, x, DType::f32)); };
    Tensor out = empty(ctx, {101}, dtype);
    cuda::uniform(ctx.stream(), dtype, out.raw(), 101, place, 7, 0, 1);
    EXPECT_EQ(values(out), values(uniform(ctx, {101}, Philox{5, 13}, 0, 1, dtype)));
    cuda::normal(ctx.stream(), dtype, out.raw(), 101, place, 7, 0, 1);
    EXPECT_EQ(values(out), values(normal(ctx, {101}, Philox{5, 13}, 0, 1, dtype)));
  }
}

TEST_F(RandomKernels, SetAndAdvanceThePlace) {
  Context ctx = pooled();
  Tensor state = empty(ctx, {2}, DType::i64);
  const auto place = [&] {
    const std::vector<std::int64_t> words = to_vector<std::int64_t>(ctx, state);
    return Philox{static_cast<std::uint64_t>(words[0]), static_cast<std::uint64_t>(words[1])};
  };
  cuda::set_random_state(ctx.stream(), state.raw(), {~std::uint64_t{0} - 1, 7});
  EXPECT_EQ(place(), (Philox{~std::uint64_t{0} - 1, 7}));
  cuda::advance_random_state(ctx.stream(), state.raw(), std::uint64_t{1} << 40);
  EXPECT_EQ(place(), (Philox{~std::uint64_t{0} - 1, (std::uint64_t{1} << 40) + 7}));
  cuda::set_random_state(ctx.stream(), state.raw(), {1, ~std::uint64_t{0}});
  cuda::advance_random_state(ctx.stream(), state.raw(), 3);
  EXPECT_EQ(place(), (Philox{1, 2}));
}

// Case G19.
TEST_F(RandomKernels, OfAGraphGiveWhatEagerDrawsGive) {
  Context ctx = pooled();
  Generator recorded(11, 3);
  Generator other(12);
  const auto draw = [&](Generator& first, Generator& second) {
    return std::vector<Tensor>{uniform(ctx, {7}, first), normal(ctx, {2, 5}, second, 1, 2),
                               normal(ctx, {1001}, first)};
  };
  CudaGraph graph;
  graph.capture_begin(ctx);
  const std::vector<Tensor> drawn = draw(recorded, other);
  graph.capture_end();
  EXPECT_EQ(recorded.next(), (Philox{11, 3}));

  Generator eager(11, 3);
  Generator eager_other(12);
  for (int run = 0; run < 6; ++run) {
    if (run == 3) {  // reseeded between two replays
      recorded.set({99, 1});
      eager.set({99, 1});
    }
    if (run == 4) {  // drawn from eagerly between two
      uniform(ctx, {3}, recorded);
      uniform(ctx, {3}, eager);
    }
    graph.replay(ctx.stream());
    const std::vector<Tensor> expected = draw(eager, eager_other);
    for (std::size_t i = 0; i < drawn.size(); ++i)
      EXPECT_EQ(to_vector<float>(ctx, drawn[i]), to_vector<float>(ctx, expected[i])) << run << " " << i;
    EXPECT_EQ(recorded.next(), eager.next());
    EXPECT_EQ(other.next(), eager_other.next());
  }
}

}  // namespace
}  // namespace burin::test
