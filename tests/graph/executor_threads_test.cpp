// Eight threads with an executor each, on shared weights and one pool: results and memory.

#include <burin/graph/executor.h>
#include <burin/nn/models/sample_cnn.h>
#include <burin/runtime/random.h>
#include <support/graph_fixture.h>

#include <deque>
#include <thread>

namespace burin::test {
namespace {

constexpr int kThreads = 8;

class ExecutorThreads : public OnGraphs {
 protected:
  using Values = std::vector<float>;

  /// An input, from the host, that is another in each thread and run.
  static Tensor draw(const Shape& shape, int thread, int run) {
    Context host(Device::cpu(), {.threads = 1});
    return uniform(host, shape, Philox{.seed = static_cast<std::uint64_t>(thread * 10'000 + run)}, -1, 1);
  }
  std::size_t reserved_bytes() {
    pool()->trim();
    return pool()->reserved_bytes();
  }

  /// The executors of all threads give what eager calls of one thread give, and need the memory of their
  /// arenas.
  void expect_equal(Context& owner, const Forward& forward, const Shape& shape, int runs) {
    std::vector<std::vector<Values>> expected(kThreads);
    for (int thread = 0; thread < kThreads; ++thread)
      for (int run = 0; run < runs; ++run) {
        const std::vector<Tensor> x = {to(owner, draw(shape, thread, run), owner.device())};
        expected[thread].push_back(to_vector<float>(owner, forward(owner, x).at(0)));
      }
    owner.synchronize();

    const std::size_t before = reserved_bytes();
    std::deque<Context> contexts;
    std::deque<GraphExecutor> executors;
    std::size_t arenas = 0;
    for (int thread = 0; thread < kThreads; ++thread) {
      contexts.push_back(make_context());
      executors.emplace_back(contexts.back(), forward, ExecutorOptions{.strict = true});
      executors.back().prepare(std::vector<Tensor>{draw(shape, thread, 0)});
      const ExecutorReport report = executors.back().report();
      EXPECT_GT(report.arena_bytes, 0u);
      arenas += report.arena_bytes + report.output_bytes;
    }
    const std::size_t all = reserved_bytes() - before;
    EXPECT_LE(all, arenas + kThreads * (std::size_t{4} << 20)) << "granules of 2 MiB aside";

    std::vector<std::vector<Values>> actual(kThreads);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] {
        for (int run = 0; run < runs; ++run)
          actual[thread].push_back(
              to_vector<float>(contexts[thread], executors[thread].run(draw(shape, thread, run))));
      });
    for (std::thread& thread : threads) thread.join();
    for (int thread = 0; thread < kThreads; ++thread) {
      EXPECT_EQ(actual[thread], expected[thread]) << "thread " << thread;
      const ExecutorReport report = executors[thread].report();
      EXPECT_EQ(report.replays, static_cast<std::uint64_t>(runs));
      EXPECT_EQ(report.captures, 1u);
    }
  }
};

TEST_F(ExecutorThreads, OfAChainEqualSerialCalls) {
  Context owner = make_context();
  const Tensor weight = vector_of(owner, {1, 2, 3, 4});
  const Forward forward = [&](Context& ctx, std::span<const Tensor> inputs) {
    Tensor y = sum2(ctx, inputs[0], weight);
    for (int i = 0; i < 4; ++i) y = affine(ctx, y, 3, 1);
    return std::vector<Tensor>{y};
  };
  expect_equal(owner, forward, {4}, 20);
}

TEST_F(ExecutorThreads, OfAModelEqualSerialCalls) {
  if (fake()) GTEST_SKIP() << "the fake device has no kernels of convolutions";
  Context owner = make_context();
  nn::SampleCnn model;
  model.init(owner, 1);
  const Forward forward = [&](Context& ctx, std::span<const Tensor> inputs) {
    return std::vector<Tensor>{model(ctx, inputs[0])};
  };
  expect_equal(owner, forward, {10, 1, 28, 28}, 200);
}

}  // namespace
}  // namespace burin::test
