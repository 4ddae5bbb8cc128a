// Streams, events, availability, and the life of memory on streams.

#include <burin/runtime/event.h>
#include <burin/runtime/name_scope.h>
#include <burin/runtime/stream.h>
#include <burin/runtime/stream_state.h>
#include <support/test_support.h>

#include <vector>

namespace burin::test {
namespace {

class StreamTest : public OnEachTarget {
 protected:
  Device device() const { return GetParam().device(); }
};
INSTANTIATE_TEST_SUITE_P(All, StreamTest,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda}, {DType::f32})),
                         target_name);

TEST_P(StreamTest, IdsAreNeverReused) {
  std::uint64_t last = 0;
  for (int i = 0; i < 20; ++i) {
    const Stream stream(device());
    EXPECT_GT(stream.view().id(), last);
    last = stream.view().id();
  }
}

TEST_P(StreamTest, IsIdleOnceSynchronized) {
  const Stream stream(device(), -100);  // a priority beyond the device's range is clamped
  stream.synchronize();
  EXPECT_TRUE(stream.view().is_idle());
  EXPECT_EQ(stream.view().device(), device());
  synchronize(device());
}

TEST_P(StreamTest, WrapsANativeHandleWithoutOwningIt) {
  const Stream owner(device());
  { const Stream wrapped = Stream::wrap(device(), owner.view().native_handle()); }
  owner.synchronize();
}

TEST_P(StreamTest, WaitsForAnEventOfAnotherStream) {
  const Stream first(device());
  const Stream second(device());
  Event event(device());
  event.record(first);
  second.wait(event);
  second.synchronize();
  EXPECT_TRUE(event.is_done());
}

TEST_P(StreamTest, K16_NeverRecordedEventsThrow) {
  const Stream stream(device());
  Event recorded(device());
  recorded.record(stream);
  const Event fresh(device());
  EXPECT_FALSE(fresh.is_recorded());
  expect_error<Error>([&] { static_cast<void>(fresh.is_done()); }, "never recorded");
  expect_error<Error>([&] { fresh.synchronize(); }, "never recorded");
  expect_error<Error>([&] { static_cast<void>(fresh.elapsed_ms(recorded)); }, "never recorded");
  expect_error<Error>([&] { static_cast<void>(recorded.elapsed_ms(fresh)); }, "never recorded");
  expect_error<Error>([&] { stream.wait(fresh); }, "never recorded");
}

TEST_P(StreamTest, K16_EventsWithoutTimingHaveNoElapsedTime) {
  const Stream stream(device());
  Event timed(device());
  Event untimed(device(), {.timing = false});
  timed.record(stream);
  untimed.record(stream);
  expect_error<Error>([&] { static_cast<void>(timed.elapsed_ms(untimed)); }, "without timing");
  untimed.synchronize();
  EXPECT_TRUE(untimed.is_done());
}

TEST_P(StreamTest, K16_ElapsedTimeWaitsForBothEventsAndHasASign) {
  Event first(device());
  Event second(device());
  first.record(ctx().stream());
  Tensor x = zeros(ctx(), {1 << 20});
  for (int i = 0; i < 20; ++i) x = clone(ctx(), x);
  second.record(ctx().stream());
  const double forward = first.elapsed_ms(second);  // not synchronised before
  EXPECT_GT(forward, 0);
  EXPECT_EQ(second.elapsed_ms(first), -forward);
  EXPECT_TRUE(second.is_done());
}

TEST_P(StreamTest, K16_EventsOfAnotherDeviceAreRefused) {
  if (device().is_cpu()) return;
  const Stream cpu_stream(Device::cpu());
  Event event(device());
  expect_error<DeviceError>([&] { event.record(cpu_stream); }, "the event is of cuda:0, the stream of cpu");
  Event cpu_event(Device::cpu());
  event.record(ctx().stream());
  cpu_event.record(cpu_stream);
  expect_error<DeviceError>([&] { static_cast<void>(event.elapsed_ms(cpu_event)); }, "cuda:0 and cpu");
  cpu_stream.wait(event);  // the host waits, as the CPU has no queue
  EXPECT_TRUE(event.is_done());
}

TEST_P(StreamTest, K4_BuffersOutliveTheirStreams) {
  const std::shared_ptr<MemoryResource> memory = make_resource(device());
  std::vector<Tensor> kept;
  for (int i = 0; i < 10; ++i) {
    ContextOptions options;
    options.memory = memory;
    options.stream.emplace(device());
    Context local(device(), std::move(options));
    kept.push_back(full(local, {1000}, i));
    local.synchronize();
  }
  for (std::size_t i = 0; i < kept.size(); ++i)
    EXPECT_EQ(to_vector<float>(ctx(), kept[i]), std::vector<float>(1000, static_cast<float>(i)));
  kept.clear();
  const Stream stream(device());
  for (int i = 0; i < 10; ++i) Buffer::allocate(memory, 4000, stream);
  stream.synchronize();
}

TEST_P(StreamTest, BuffersMayBeTheLastOwnerOfAStream) {
  std::shared_ptr<Buffer> buffer;
  {
    const Stream stream(device());
    buffer = Buffer::allocate(make_resource(device()), 1 << 20, stream);
  }
  buffer.reset();
  synchronize(device());
}

TEST_P(StreamTest, ResourcesRefuseDevicesThatDoNotExist) {
  if (device().is_cpu()) return;
  expect_error<DeviceError>([] { make_resource(Device::cuda(1000)); }, "cuda:1000 does not exist");
  expect_error<DeviceError>([] { Stream stream(Device::cuda(1000)); }, "cuda:1000 does not exist");
  expect_error<DeviceError>([] { Context context(Device::cuda(1000)); }, "cuda:1000 does not exist");
}

TEST_P(StreamTest, MemoryIsAlignedAndNothingIsAskedForNoBytes) {
  const std::shared_ptr<MemoryResource> memory = make_resource(device());
  EXPECT_EQ(memory->allocate(0, ctx().stream()), nullptr);
  memory->deallocate(nullptr, 0, ctx().stream());
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{255}, std::size_t{100000}}) {
    void* data = memory->allocate(bytes, ctx().stream());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % MemoryResource::kAlignment, 0u);
    memory->deallocate(data, bytes, ctx().stream());
  }
}

TEST_P(StreamTest, ImpossibleRequestsAreOutOfMemoryAndLeaveTheDeviceUsable) {
  const std::size_t bytes = std::size_t{1} << 50;
  try {
    static_cast<void>(make_resource(device())->allocate(bytes, ctx().stream()));
    ADD_FAILURE() << "2^50 bytes were allocated";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.figures().requested, bytes);
    EXPECT_EQ(error.figures().total > 0, device().is_cuda());
  }
  EXPECT_EQ(to_vector<float>(ctx(), full(ctx(), {3}, 7)), std::vector<float>(3, 7.0f));
}

TEST_P(StreamTest, ListenersHearOfTheEndOnceAndWhileTheStreamIsUsable) {
  struct Listener final : detail::StreamListener {
    void stream_ending(StreamView stream) noexcept override {
      ended.push_back(stream.id());
      idle = stream.is_idle();
    }
    std::vector<std::uint64_t> ended;
    bool idle = false;
  };
  const auto listener = std::make_shared<Listener>();
  auto gone = std::make_shared<Listener>();
  std::vector<std::uint64_t> ids;
  const Stream kept(device());
  kept.view().share()->add_listener(listener);
  for (const bool wrapped : {false, true}) {
    const Stream stream = wrapped ? Stream::wrap(device(), kept.view().native_handle()) : Stream(device());
    stream.view().share()->add_listener(gone);
    stream.view().share()->add_listener(listener);
    ids.push_back(stream.view().id());
    gone.reset();
  }
  EXPECT_EQ(listener->ended, ids);
  EXPECT_TRUE(listener->idle);
}

TEST_P(StreamTest, NameScopesNestOnTheirStream) {
  const auto state = ctx().stream().share();
  EXPECT_EQ(state->scope().path, "");
  EXPECT_EQ(state->scope_hash(), 0u);
  {
    const NameScope outer(ctx(), "resnet");
    const NameScope unnamed(ctx(), "");
    EXPECT_EQ(state->scope().path, "resnet");
    {
      const NameScope inner(ctx(), "layer1.0");
      EXPECT_EQ(state->scope().path, "resnet.layer1.0");
    }
    const std::uint64_t now = state->scope_hash();
    const NameScope inner(ctx(), "fc");
    EXPECT_EQ(state->scope().path, "resnet.fc");
    EXPECT_NE(state->scope_hash(), now);
  }
  EXPECT_EQ(state->scope().path, "");
  EXPECT_EQ(state->scope_hash(), 0u);
}

TEST(NameScopeTest, ScopesThatDoNotNestLeaveNoPathBehind) {
  Context ctx;
  auto outer = std::make_unique<NameScope>(ctx, "outer");
  auto inner = std::make_unique<NameScope>(ctx, "inner");
  outer.reset();
  EXPECT_EQ(ctx.stream().share()->scope().path, "");
  inner.reset();
  EXPECT_EQ(ctx.stream().share()->scope().path, "");
}

TEST(Availability, SaysWhyCudaCannotBeUsed) {
  const CudaAvailability cuda = cuda_availability();
  EXPECT_EQ(cuda.count > 0, cuda.reason.empty());
  if (cuda.count > 0) GTEST_SKIP() << "CUDA can be used here";
  expect_error<DeviceError>([] { Context context(Device::cuda()); }, cuda.reason);
  expect_error<DeviceError>([] { Stream stream(Device::cuda()); }, cuda.reason);
  expect_error<DeviceError>([] { Event event(Device::cuda()); }, cuda.reason);
  Context cpu;
  expect_error<DeviceError>([&] { empty_pinned(cpu, {2}); }, cuda.reason);
}

}  // namespace
}  // namespace burin::test
