// Whatever fails while a pass is captured and replayed, the stream, the memory and later runs are right.
// Calls of CUDA fail on the fake device, whether there is a GPU or not; operators and allocations on either.

#include <burin/graph/capture.h>
#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/cuda/graph_calls.h>
#include <burin/runtime/memory/adaptors.h>
#include <burin/runtime/memory/caching_pool.h>
#include <burin/runtime/name_scope.h>
#include <support/graph_fixture.h>

#include <array>
#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace burin::test {
namespace {

using Inputs = std::span<const Tensor>;

constexpr int kOps = 5;

/// Five operators, one of them a library's, after each of which `after` is called with its number from 1.
std::vector<Tensor> pass(
    Context& ctx, Inputs inputs, const std::function<void(int)>& after = [](int) {}) {
  const Tensor y = affine(ctx, inputs[0], 2, 1);
  after(1);
  const Tensor z = hidden(ctx, y);
  after(2);
  Tensor w = sum2(ctx, z, inputs[1]);
  after(3);
  affine_into(ctx, w, w, 1, 1);
  after(4);
  const Tensor last = hidden(ctx, inputs[1]);
  after(kOps);
  return {w, last};
}
constexpr float first_of(float a, float b) { return 2 * a + b + 2; }

void expect_results(Context& ctx, const std::vector<Tensor>& results, float a, float b) {
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(to_vector<float>(ctx, results[0]), std::vector<float>(4, first_of(a, b)));
  EXPECT_EQ(to_vector<float>(ctx, results[1]), std::vector<float>(4, b));
}

/// What is captured and replayed by each test: with capture() or by hand.
struct Inputs3 {
  Tensor a;  // 1
  Tensor b;  // 10
  Tensor c;  // 100
};
Inputs3 make_inputs(Context& ctx) {
  const auto filled = [&](float value) { return from_host(ctx, std::vector<float>(4, value), {4}); };
  return {filled(1), filled(10), filled(100)};
}
void capture_and_replay(Context& ctx, const Inputs3& with, const Forward& forward) {
  CudaGraph graph = capture(ctx, forward, {with.a, with.b});
  graph.replay(ctx.stream());
  expect_results(ctx, graph.outputs(), 1, 10);
  graph.replay(ctx.stream(), std::array{with.c, with.b});
  expect_results(ctx, graph.outputs(), 100, 10);
  graph.replay(ctx.stream(), std::array{with.c, with.a});
  expect_results(ctx, graph.outputs(), 100, 1);
}
void capture_by_hand(Context& ctx, const Inputs3& with, const Forward& forward) {
  CudaGraph graph;
  graph.capture_begin(ctx);
  const std::vector<Tensor> results = forward(ctx, std::array{with.a, with.b});
  graph.capture_end();
  graph.replay(ctx.stream());
  expect_results(ctx, results, 1, 10);
  graph.reset();
  graph.capture_begin(ctx);
  const std::vector<Tensor> again = forward(ctx, std::array{with.c, with.b});
  graph.capture_end();
  graph.replay(ctx.stream());
  expect_results(ctx, again, 100, 10);
}
/// A caller's capture, which is dropped unless it is ended.
class CallersCapture {
 public:
  explicit CallersCapture(StreamView stream) : stream_(stream) {
    cuda::begin_capture(stream);
    is_capturing_ = true;
  }
  ~CallersCapture() {
    if (is_capturing_) cuda::abandon_capture(stream_);
  }
  CallersCapture(const CallersCapture&) = delete;
  CallersCapture& operator=(const CallersCapture&) = delete;
  cuda::GraphHandle end() {
    cuda::GraphHandle graph = cuda::end_capture(stream_);
    is_capturing_ = false;
    return graph;
  }

 private:
  StreamView stream_;
  bool is_capturing_ = false;
};

void compose(Context& ctx, const Inputs3& with, const Forward& forward) {
  const Stream callers(Device::cuda(0));
  CudaGraph inner = capture(ctx, forward, {with.a, with.b});
  RecordedPass pass;
  callers.wait(ctx.stream());
  CallersCapture capturing(callers);
  pass = record(ctx, callers, forward, {with.c, with.b});
  inner.add_to_capture(callers);
  const cuda::GraphHandle whole = capturing.end();
  const cuda::GraphExecHandle exec = cuda::instantiate(whole.get(), 0);
  try {
    cuda::launch_graph(exec.get(), callers);
    callers.synchronize();
  } catch (...) {
    cuda::ignore(cuda::api().cudaDeviceSynchronize());  // the caller's to wait before letting go
    throw;
  }
  expect_results(ctx, pass.outputs, 100, 10);
  expect_results(ctx, inner.outputs(), 1, 10);
}

const Forward kPass = [](Context& ctx, Inputs inputs) { return pass(ctx, inputs); };

using Program = void (*)(Context&, const Inputs3&, const Forward&);

struct Fault {
  std::string name;
  Program program;
  cudaError_t code = cudaSuccess;
  bool and_all_later = false;
};
std::ostream& operator<<(std::ostream& out, const Fault& fault) { return out << fault.name; }

class CudaFaults : public ::testing::TestWithParam<Fault> {};

INSTANTIATE_TEST_SUITE_P(
    All, CudaFaults,
    ::testing::Values(Fault{"no_memory", capture_and_replay, cudaErrorMemoryAllocation},
                      Fault{"refused", capture_and_replay, cudaErrorNotPermitted},
                      Fault{"invalidated", capture_and_replay, cudaErrorStreamCaptureInvalidated},
                      Fault{"lost", capture_and_replay, cudaErrorIllegalAddress},
                      Fault{"no_memory_from_then_on", capture_and_replay, cudaErrorMemoryAllocation, true},
                      Fault{"refused_from_then_on", capture_and_replay, cudaErrorNotPermitted, true},
                      Fault{"lost_from_then_on", capture_and_replay, cudaErrorIllegalAddress, true},
                      Fault{"by_hand_no_memory", capture_by_hand, cudaErrorMemoryAllocation},
                      Fault{"by_hand_refused", capture_by_hand, cudaErrorNotPermitted},
                      Fault{"by_hand_refused_from_then_on", capture_by_hand, cudaErrorNotPermitted, true},
                      Fault{"composed_no_memory", compose, cudaErrorMemoryAllocation},
                      Fault{"composed_refused", compose, cudaErrorNotPermitted},
                      Fault{"composed_refused_from_then_on", compose, cudaErrorNotPermitted, true}),
    [](const ::testing::TestParamInfo<Fault>& param) { return param.param.name; });

TEST_P(CudaFaults, EveryCallMayFail) {
  const auto& [name, program, code, and_all_later] = GetParam();
  const bool lost = code == cudaErrorIllegalAddress;
#if defined(__SANITIZE_ADDRESS__)
  std::optional<__lsan::ScopedDisabler> kept;
  if (lost || and_all_later) kept.emplace();
#endif
  bool hit = true;
  std::uint64_t n = 0;
  while (hit) {
    ++n;
    ASSERT_LT(n, 5000u) << "the program never stops calling CUDA";
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, "call " + std::to_string(n));
    FakeCuda fake;
    register_graph_ops(fake);
    {
      const auto memory = std::make_shared<CachingPool>(Device::cuda(0));
      ContextOptions options;
      options.memory = memory;
      options.threads = 1;
      options.warn = [](std::string_view) {};
      Context ctx(Device::cuda(0), std::move(options));
      const Inputs3 inputs = make_inputs(ctx);
      expect_results(ctx, kPass(ctx, std::array{inputs.a, inputs.b}), 1, 10);
      memory->trim();
      const FakeCuda::Live before = fake.live();

      fake.fail_call(n, code, and_all_later);
      try {
        program(ctx, inputs, kPass);
      } catch (const OutOfMemory&) {
      } catch (const CudaError&) {
      } catch (const DeviceError&) {
      } catch (const CaptureError&) {
      } catch (const std::exception& error) {
        ADD_FAILURE() << "not a typed error: " << error.what();
      }
      hit = fake.has_failed();
      fake.fail_call(0, cudaSuccess);
      EXPECT_EQ(ctx.memory(), memory);
      if (!lost) {
        EXPECT_EQ(cuda::capture_id(ctx.stream()), 0u);
        expect_results(ctx, kPass(ctx, std::array{inputs.a, inputs.b}), 1, 10);
        ctx.synchronize();
        memory->trim();
        const FakeCuda::Live now = fake.live();
        EXPECT_EQ(now.graphs, before.graphs);
        EXPECT_EQ(now.streams, before.streams);
        if (!and_all_later) {  // else no wait succeeded, and what work may still use is kept for ever
          EXPECT_EQ(now.device_bytes, before.device_bytes);
          EXPECT_EQ(now.handles, before.handles);
        }
        program(ctx, inputs, kPass);
      }
    }
    EXPECT_EQ(fake.violations(), std::vector<std::string>());
    const FakeCuda::Live left = fake.live();
    EXPECT_EQ(left.streams, 0u);
    EXPECT_EQ(left.events, 0u);
    EXPECT_EQ(left.graphs, 0u);
    if (!lost && !and_all_later) {
      EXPECT_EQ(left, FakeCuda::Live());
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(n, 20u);
}

class CaptureFaults : public OnGraphs {
 protected:
  /// The stream, the memory and later runs are right.
  void expect_intact(Context& ctx, const Inputs3& inputs, std::size_t bytes) {
    EXPECT_FALSE(is_capturing(ctx));
    expect_results(ctx, kPass(ctx, std::array{inputs.a, inputs.b}), 1, 10);
    EXPECT_EQ(trimmed_bytes(), bytes);
    capture_and_replay(ctx, inputs, kPass);
    EXPECT_EQ(trimmed_bytes(), bytes);
  }
};

TEST_F(CaptureFaults, EveryOperatorMayBeTheLast) {
  Context ctx = make_context();
  const Inputs3 inputs = make_inputs(ctx);
  const std::size_t before = trimmed_bytes();
  struct Custom {};
  for (const Program program : {capture_and_replay, capture_by_hand, compose}) {
    int calls = 0;
    bool hit = true;
    for (int n = 1; hit; ++n) {
      ASSERT_LT(n, 100) << "the pass is run again and again";
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, "after operator " + std::to_string(n));
      calls = 0;
      const Forward forward = [&](Context& c, Inputs in) {
        return pass(c, in, [&](int) {
          if (++calls == n) throw Custom();
        });
      };
      hit = false;
      try {
        program(ctx, inputs, forward);
      } catch (const Custom&) {
        hit = true;
      }
      expect_intact(ctx, inputs, before);
    }
    EXPECT_GE(calls, 2 * kOps) << "a warm-up and a recorded run, or two recorded ones";
  }
}

TEST_F(CaptureFaults, EveryAllocationMayFail) {
  const auto failing = std::make_shared<FailingResource>(pool());
  Context ctx = make_context(failing);
  const Inputs3 inputs = make_inputs(ctx);
  const std::size_t before = trimmed_bytes();
  for (const Program program : {capture_and_replay, capture_by_hand, compose}) {
    bool hit = true;
    for (std::uint64_t n = 1; hit; ++n) {
      ASSERT_LT(n, 200u) << "the pass allocates for ever";
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, "allocation " + std::to_string(n));
      failing->arm({.nth = n});
      hit = false;
      try {
        program(ctx, inputs, kPass);
      } catch (const OutOfMemory&) {
        hit = true;
      }
      EXPECT_EQ(failing->fired(), hit) << "an allocation failed in silence";
      failing->disarm();
      EXPECT_EQ(ctx.memory(), failing);
      expect_intact(ctx, inputs, before);
    }
  }
}

TEST_F(CaptureFaults, AFailureNamesTheOperatorAndItsModule) {
  Context ctx = make_context();
  const Inputs3 inputs = make_inputs(ctx);
  const Forward waits_when_recorded = [](Context& c, Inputs in) {
    const Tensor y = affine(c, in[0], 2, 1);
    const NameScope scope(c, "head.topk");
    if (is_capturing(c)) to(c, y, Device::cpu());
    return std::vector{y};
  };
  for (const char* piece : {"copy", "head.topk"})
    expect_error<CaptureError>([&] { capture(ctx, waits_when_recorded, {inputs.a}); }, piece);
  expect_intact(ctx, inputs, trimmed_bytes());
}

TEST_F(CaptureFaults, GraphsEndWhileAnotherThreadCaptures) {
  Context ctx = make_context();
  const Inputs3 inputs = make_inputs(ctx);
  ctx.synchronize();
  std::atomic<bool> done{false};
  std::atomic<int> made{0};
  std::thread other([&] {
    Context own = make_context();
    const Tensor x = from_host(own, std::vector<float>(4, 2), {4});
    while (!done) {
      CudaGraph graph;
      record_affine(graph, own, x, 2, 0);
      graph.replay(own.stream());
      ++made;
    }  // destroyed here, while the main thread captures
    own.synchronize();
  });
  for (int i = 0; i < sweep(300) || made < 10; ++i) capture_by_hand(ctx, inputs, kPass);
  done = true;
  other.join();
  EXPECT_FALSE(is_capturing(ctx));
}

}  // namespace
}  // namespace burin::test
