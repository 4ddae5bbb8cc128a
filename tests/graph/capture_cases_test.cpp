// What other libraries' captures got wrong (memory, random numbers, growth), by the numbers of the cases.

#include <burin/graph/capture.h>
#include <burin/ops/matmul/matmul.h>
#include <burin/runtime/copy.h>
#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/random.h>
#include <support/graph_fixture.h>

#include <array>
#include <atomic>
#include <fstream>
#include <thread>
#include <unistd.h>

namespace burin::test {
namespace {

using Inputs = std::span<const Tensor>;

constexpr std::int64_t kMiFloats = std::int64_t{1} << 20;  // 4 MiB, a block of which fills its mapping

std::vector<Tensor> chain(Context& ctx, Inputs inputs) {
  return {affine(ctx, sum2(ctx, affine(ctx, inputs[0], 2, 1), inputs[0]), 1, 1)};
}
constexpr float result_of(float x) { return 3 * x + 2; }

class CaptureCases : public OnGraphs {
 protected:
  /// Resident memory of this process.
  static std::size_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    std::size_t pages = 0;
    file >> pages >> pages;
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  }
  static std::size_t device_free_bytes() {
    std::size_t free = 0;
    std::size_t total = 0;
    cuda::memory_info(0, &free, &total);
    return free;
  }
};

TEST_F(CaptureCases, G2_AFullPoolIsOutOfMemory) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1, kMiFloats);
  pool()->set_limit_bytes(trimmed_bytes() + x.bytes() / 2);
  const std::size_t before = trimmed_bytes();
  EXPECT_THROW(capture(ctx, chain, {x}), OutOfMemory);
  EXPECT_EQ(trimmed_bytes(), before);
  EXPECT_FALSE(is_capturing(ctx));
  CudaGraph graph;
  graph.capture_begin(ctx);
  EXPECT_THROW(affine(ctx, x, 2, 0), OutOfMemory);
  graph.reset();
  EXPECT_EQ(trimmed_bytes(), before);
  pool()->set_limit_bytes(std::size_t{1} << 30);
  expect_usable(ctx);
  graph = capture(ctx, chain, {x});
  graph.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, graph.outputs()[0]), result_of(1));
}

TEST_F(CaptureCases, G3_WhatIsFreedDuringACaptureIsNotReusedBeforeItsUse) {
  Context ctx = make_context();
  Context other = make_context();
  const Tensor negative = filled(other, -1, kMiFloats);
  Tensor y;
  CudaGraph graph;
  {
    Tensor x = filled(ctx, 3, kMiFloats);
    graph.capture_begin(ctx);
    y = hidden(ctx, x);
    x = Tensor();
    for (int i = 0; i < 4; ++i) affine(other, negative, 1, 0);
    graph.capture_end();
  }
  for (int i = 0; i < 4; ++i) affine(other, negative, 1, 0);
  graph.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, y), 3);
}

TEST_F(CaptureCases, G4_AHundredGraphsOfOneGemmCostNothingEach) {
  if (fake()) GTEST_SKIP() << "matrix products are a library's, which the fake device lacks";
  Context ctx = make_context();
  const Tensor a = filled(ctx, 1, 256 * 256).reshape({256, 256});
  const Tensor b = filled(ctx, 2, 256 * 256).reshape({256, 256});
  const auto forward = [](Context& c, Inputs in) { return std::vector{matmul(c, in[0], in[1])}; };
  const CaptureOptions shared{.pool = make_graph_pool(ctx)};
  std::vector<CudaGraph> graphs;
  graphs.push_back(capture(ctx, forward, {a, b}, shared));  // first of all: nothing was warmed up
  for (const GraphNode& node : graphs[0].nodes()) EXPECT_NE(node.kind, GraphNode::Kind::other);
  const std::size_t arena = shared.pool.reserved_bytes();
  const std::size_t output = graphs[0].outputs()[0].bytes();
  const std::size_t held = pool()->stats().allocated_bytes.current;
  for (int i = 1; i < 100; ++i) graphs.push_back(capture(ctx, forward, {a, b}, shared));
  EXPECT_EQ(shared.pool.reserved_bytes(), arena);
  EXPECT_EQ(pool()->stats().allocated_bytes.current, held + 99 * output) << "more than the outputs";
  for (CudaGraph& graph : graphs) {
    graph.replay(ctx.stream());
    EXPECT_EQ(value_of(ctx, graph.outputs()[0]), 512);
  }
  ctx.synchronize();
  const std::size_t free = device_free_bytes();
  for (int i = 0; i < 100; ++i) graphs[static_cast<std::size_t>(i)] = capture(ctx, forward, {a, b}, shared);
  EXPECT_GE(device_free_bytes() + (std::size_t{2} << 20), free);
}

TEST_F(CaptureCases, G8_StagingMemoryOfACapturedCopyIsKept) {
  Context ctx = make_context();
  Tensor staging = empty_pinned(ctx, {4});
  std::fill_n(staging.data<float>(), 4, 6.0f);
  CudaGraph graph;
  graph.capture_begin(ctx);
  Tensor x = empty(ctx, {4});
  copy(ctx, x, staging);
  const Tensor y = affine(ctx, x, 2, 0);
  graph.capture_end();
  staging = Tensor();
  for (int i = 0; i < 8; ++i) {
    Tensor other = empty_pinned(ctx, {4});
    std::fill_n(other.data<float>(), 4, -1.0f);
    Tensor landed = empty(ctx, {4});
    copy_async(ctx, landed, other);
  }
  graph.replay(ctx.stream());
  EXPECT_EQ(value_of(ctx, y), 12);
}

TEST_F(CaptureCases, G14_FailedCapturesLeaveNothing) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1);
  const Tensor large = filled(ctx, 1, kMiFloats);
  ctx.synchronize();
  const std::size_t before = trimmed_bytes();
  struct Custom {};
  for (int i = 0; i < sweep(1000); ++i) {
    CudaGraph graph;
    int run = 0;
    const auto fails_in_its_capture = [&](Context& c, Inputs in) {
      const Tensor y = affine(c, in[0], 2, 0);
      if (is_capturing(c) && ++run > 0) throw Custom();
      return std::vector{affine(c, y, 2, 0)};
    };
    switch (i % 3) {
      case 0: EXPECT_THROW(capture(ctx, fails_in_its_capture, {x}), Custom); break;
      case 1:
        graph.capture_begin(ctx);
        affine(ctx, large, 2, 0);
        EXPECT_THROW(ctx.synchronize(), Error);
        EXPECT_THROW(graph.capture_end(), CaptureError);
        break;
      default:
        graph.capture_begin(ctx);
        affine(ctx, large, 2, 0);
        EXPECT_THROW(empty(ctx, {std::int64_t{1} << 50}, DType::u8), OutOfMemory);
    }
  }
  expect_usable(ctx);
  EXPECT_EQ(trimmed_bytes(), before);
}

TEST_F(CaptureCases, G18_MemoryThatCrossesStreamsComesBackAtTheJoin) {
  Context ctx = make_context();
  Context side = make_context();
  const Tensor x = filled(ctx, 1, kMiFloats);
  std::size_t after_one = 0;
  for (const int rounds : {1, 100}) {
    CudaGraph graph;
    graph.capture_begin(ctx);
    Tensor y = affine(ctx, x, 1, 0);
    for (int i = 0; i < rounds; ++i) {
      const Tensor here = affine(ctx, y, 1, 1);
      side.stream().wait(ctx.stream());
      const Tensor there = affine(side, here, 1, 1);
      here.record_use(side.stream());
      ctx.stream().wait(side.stream());
      y = affine(ctx, there, 1, 1);
      there.record_use(ctx.stream());
    }
    graph.capture_end();
    if (rounds == 1) after_one = graph.pool().reserved_bytes();
    EXPECT_LE(graph.pool().reserved_bytes(), after_one + 2 * x.bytes()) << rounds;
    graph.replay(ctx.stream());
    EXPECT_EQ(value_of(ctx, y), 1.0f + 3.0f * static_cast<float>(rounds));
  }
}

TEST_F(CaptureCases, G19_RandomNumbersAreFreshAndThoseOfEagerRuns) {
  if (fake()) GTEST_SKIP() << "the kernels of random numbers do not exist on the fake device";
  Context ctx = make_context();
  constexpr std::uint64_t kSeed = 42;
  Generator drawn(kSeed);
  Generator eager(kSeed);
  CudaGraph graph;
  graph.capture_begin(ctx);
  const Tensor u = uniform(ctx, {1000}, drawn, -1, 1);
  const Tensor z = normal(ctx, {333}, drawn);
  graph.capture_end();
  EXPECT_EQ(drawn.next().offset, 0u) << "a capture draws nothing";
  const auto expect_next = [&] {
    graph.replay(ctx.stream());
    EXPECT_EQ(to_vector<float>(ctx, u), to_vector<float>(ctx, uniform(ctx, {1000}, eager, -1, 1)));
    EXPECT_EQ(to_vector<float>(ctx, z), to_vector<float>(ctx, normal(ctx, {333}, eager)));
    EXPECT_EQ(drawn.next().offset, eager.next().offset);
  };
  std::vector<float> last;
  for (int i = 0; i < 5; ++i) {
    expect_next();
    const std::vector<float> values = to_vector<float>(ctx, u);
    EXPECT_NE(values, last);
    last = values;
  }
  uniform(ctx, {77}, drawn);  // eager draws between replays are of the same sequence
  uniform(ctx, {77}, eager);
  expect_next();
  const Philox reseeded{7, 5};
  drawn.set(reseeded);
  eager.set(reseeded);
  for (int i = 0; i < 3; ++i) expect_next();
  drawn.set({kSeed, 0});
  eager.set({kSeed, 0});
  expect_next();
  Context other = make_context();  // on another stream, behind what this one runs
  graph.replay(other.stream());
  EXPECT_EQ(to_vector<float>(other, u), to_vector<float>(other, uniform(other, {1000}, eager, -1, 1)));
}

TEST_F(CaptureCases, G19_AGeneratorInSeveralGraphsIsOneSequence) {
  if (fake()) GTEST_SKIP() << "the kernels of random numbers do not exist on the fake device";
  Context ctx = make_context();
  Generator drawn(3);
  Generator eager(3);
  const auto forward = [&](Context& c, Inputs) { return std::vector{uniform(c, {100}, drawn)}; };
  CudaGraph first = capture(ctx, forward);
  CudaGraph second = capture(ctx, forward);
  drawn.set({3, 0});  // warm-up drew
  for (int i = 0; i < 6; ++i) {
    CudaGraph& graph = i % 3 == 0 ? second : first;
    graph.replay(ctx.stream());
    EXPECT_EQ(to_vector<float>(ctx, graph.outputs()[0]), to_vector<float>(ctx, uniform(ctx, {100}, eager)));
  }
}

TEST_F(CaptureCases, G21_CapturesAndTheirEndGrowNothing) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1, kMiFloats);
  const auto cycle = [&] {
    CudaGraph graph;
    graph.capture_begin(ctx);
    const Tensor y = affine(ctx, affine(ctx, x, 2, 0), 2, 0);
    graph.capture_end();
    for (const GraphNode& node : graph.nodes()) EXPECT_NE(node.kind, GraphNode::Kind::other);
    graph.replay(ctx.stream());
  };
  cycle();
  ctx.synchronize();
  const std::size_t before = trimmed_bytes();
  const std::size_t free = device_free_bytes();
  for (int i = 0; i < 100; ++i) cycle();
  EXPECT_EQ(trimmed_bytes(), before);
  EXPECT_GE(device_free_bytes() + (std::size_t{2} << 20), free);
}

TEST_F(CaptureCases, G24_TenThousandCapturesLeaveNoHandle) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1);
  const GraphPool shared = make_graph_pool(ctx);
  const auto cycle = [&] {
    CudaGraph graph;
    const Tensor y = record_affine(graph, ctx, x, 2, 0, shared);
    graph.replay(ctx.stream());
  };
  for (int i = 0; i < 3; ++i) cycle();
  ctx.synchronize();
  const FakeCuda::Live before = fake() ? fake()->live() : FakeCuda::Live{};
  for (int i = 0; i < sweep(10'000); ++i) cycle();
  ctx.synchronize();
  if (fake()) {
    EXPECT_EQ(fake()->live(), before);
  }
  expect_usable(ctx);
}

TEST_F(CaptureCases, G27_MemoryThatDoesNotExistIsAskedForInACapture) {
  Context ctx = make_context();
  const Tensor x = filled(ctx, 1);
  const std::size_t before = trimmed_bytes();
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  {
    CudaGraph graph;
    graph.capture_begin(ctx);
    affine(ctx, x, 2, 0);
    EXPECT_THROW(empty(ctx, {kHuge}, DType::u8), OutOfMemory);
    EXPECT_TRUE(is_capturing(ctx)) << "the caller may go on without it";
    const Tensor y = affine(ctx, x, 4, 0);
    graph.capture_end();
    graph.replay(ctx.stream());
    EXPECT_EQ(value_of(ctx, y), 4);
  }
  const auto greedy = [&](Context& c, Inputs in) {
    if (is_capturing(c)) empty(c, {kHuge}, DType::u8);
    return chain(c, in);
  };
  EXPECT_THROW(capture(ctx, greedy, {x}), OutOfMemory);
  expect_usable(ctx);
  EXPECT_EQ(trimmed_bytes(), before);
}

TEST_F(CaptureCases, G27_CapturesOfOneThreadAndOfTwoStayApart) {
  Context one = make_context();
  Context two = make_context();
  const Tensor x = filled(one, 1);
  two.stream().wait(one.stream());
  CudaGraph first;
  CudaGraph second;
  first.capture_begin(one);
  const Tensor a = affine(one, x, 2, 0);
  second.capture_begin(two);
  const Tensor b = affine(two, x, 3, 0);
  const Tensor c = affine(one, a, 2, 0);
  first.capture_end();
  const Tensor d = affine(two, b, 3, 0);
  second.capture_end();
  EXPECT_EQ(first.nodes().size(), 2u);
  EXPECT_EQ(second.nodes().size(), 2u);
  second.replay(two.stream());
  first.replay(one.stream());
  EXPECT_EQ(value_of(one, c), 4);
  EXPECT_EQ(value_of(two, d), 9);

  std::atomic<int> wrong{0};
  const auto body = [&](float factor) {
    Context ctx = make_context();
    const Tensor own = filled(ctx, 1);
    for (int i = 0; i < 100; ++i) {
      CudaGraph graph = capture(
          ctx,
          [=](Context& at, Inputs in) { return std::vector{affine(at, affine(at, in[0], factor, 0), 1, 1)}; },
          {own});
      graph.replay(ctx.stream());
      wrong += value_of(ctx, graph.outputs()[0]) != factor + 1;
    }
  };
  std::thread other([&] { body(5); });
  body(6);
  other.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(CaptureCases, ManyCapturesAndReplaysGrowNothing) {
  Context ctx = make_context();
  const Tensor a = filled(ctx, 1, 1000);
  const Tensor b = filled(ctx, 2, 1000);
  const auto captures = [&](int count) {
    for (int i = 0; i < count; ++i) capture(ctx, chain, {a}).replay(ctx.stream(), std::array{b});
    ctx.synchronize();
  };
  CudaGraph graph = capture(ctx, chain, {a});
  const auto replays = [&](int count) {
    for (int i = 0; i < count; ++i) graph.replay(ctx.stream(), std::array{i % 2 == 0 ? a : b});
    ctx.synchronize();
  };
  captures(200);
  replays(10'000);  // the fake device keeps some thousands of operations
  const std::size_t held = trimmed_bytes();
  const FakeCuda::Live live = fake() ? fake()->live() : FakeCuda::Live{};
  const std::size_t free = device_free_bytes();
  const std::size_t resident = resident_bytes();
  captures(sweep(1000));
  replays(10 * sweep(1000));
  EXPECT_EQ(trimmed_bytes(), held);
  if (fake()) {
    EXPECT_EQ(fake()->live(), live);
  }
  EXPECT_GE(device_free_bytes() + (std::size_t{2} << 20), free);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(resident_bytes(), resident + (std::size_t{2} << 20));
#else
  (void)resident;  // sanitizers keep what was freed
#endif
  EXPECT_EQ(value_of(ctx, graph.outputs()[0]), result_of(2));
}

}  // namespace
}  // namespace burin::test
