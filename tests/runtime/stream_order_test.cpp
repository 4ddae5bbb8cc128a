// What streams, events and asynchronous copies promise about order and the life of memory, on a GPU or on the
// fake device.

#include <burin/runtime/event.h>
#include <burin/runtime/stream.h>
#include <support/cuda_fixture.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <thread>

namespace burin::test {
namespace {

constexpr std::int64_t kCount = 1 << 16;
const Device kCuda = Device::cuda(0);

Tensor bytes_of(Context& ctx, int value) { return full(ctx, {kCount}, value, DType::u8); }

Tensor pinned_bytes(Context& ctx, int value) {
  Tensor host = empty_pinned(ctx, {kCount}, DType::u8);
  std::memset(host.raw(), value, host.bytes());
  return host;
}

/// Every byte of a host tensor is this.
bool holds(const Tensor& host, int value) {
  const std::uint8_t* data = host.data<std::uint8_t>();
  return std::all_of(data, data + host.count(), [=](std::uint8_t byte) { return byte == value; });
}

class RecordUse : public OnCuda {};

TEST_F(RecordUse, K8_MemoryThatASideStreamReadsIsNotReusedBefore) {
  const auto memory = std::make_shared<ReusingResource>(make_cuda_resource(0));
  Context main = make_context(memory);
  Context side = make_context();
  Tensor host = empty_pinned(side, {kCount}, DType::u8);
  for (int i = 0; i < 1000; ++i) {
    Tensor block = bytes_of(main, i % 7);
    const void* address = block.raw();
    side.stream().wait(main.stream());
    delay(side);
    const Transfer copied = copy_async(side, host, block);
    block = Tensor();
    const Tensor reused = bytes_of(main, 7);
    ASSERT_EQ(reused.raw(), address);
    copied.wait();
    ASSERT_TRUE(holds(host, i % 7)) << i;
  }
}

TEST_F(RecordUse, K8_TheAllocatingStreamNeedsNoRecord) {
  const auto memory = std::make_shared<ReusingResource>(make_cuda_resource(0));
  Context ctx = make_context(memory);
  Tensor host = empty_pinned(ctx, {kCount}, DType::u8);
  Tensor block = bytes_of(ctx, 1);
  const Transfer copied = copy_async(ctx, host, block);
  block = Tensor();
  EXPECT_EQ(memory->last_users(), 0u);
  bytes_of(ctx, 7);
  copied.wait();
  EXPECT_TRUE(holds(host, 1));
}

TEST_F(RecordUse, K13_PinnedMemoryIsReusedOnlyAfterItsCopy) {
  const auto pinned = std::make_shared<ReusingResource>(make_pinned_resource());
  Context ctx = make_context(nullptr, 0, pinned);
  for (int i = 0; i < 200; ++i) {
    Tensor y = empty(ctx, {kCount}, DType::u8);
    delay(ctx);
    const void* address = nullptr;
    {
      const Tensor host = pinned_bytes(ctx, i % 100);
      address = host.raw();
      copy_async(ctx, y, host);
    }
    ASSERT_EQ(pinned_bytes(ctx, 200).raw(), address);
    ASSERT_EQ(to_vector<std::uint8_t>(ctx, y), std::vector<std::uint8_t>(kCount, std::uint8_t(i % 100)));
  }
}

TEST_F(RecordUse, K13_PlainCopiesKeepPinnedMemoryToo) {
  const auto pinned = std::make_shared<ReusingResource>(make_pinned_resource());
  Context ctx = make_context(nullptr, 0, pinned);
  Tensor y = empty(ctx, {kCount}, DType::u8);
  delay(ctx);
  copy(ctx, y, pinned_bytes(ctx, 3));
  EXPECT_EQ(pinned->last_users(), 1u);
  pinned_bytes(ctx, 200);
  EXPECT_EQ(to_vector<std::uint8_t>(ctx, y), std::vector<std::uint8_t>(kCount, 3));
}

TEST_F(RecordUse, K15_StreamsSeePageableMemoryThatWasCopiedBefore) {
  Context ctx = make_context();
  for (int i = 0; i < 50; ++i) {
    Tensor y;
    {
      const std::vector<float> host(275000, static_cast<float>(i));  // 1.1 MB
      y = clone(ctx, from_host(ctx, host, {275000}));
    }
    const std::vector<float> back = to_vector<float>(ctx, y);
    ASSERT_TRUE(std::all_of(back.begin(), back.end(), [=](float value) { return value == float(i); })) << i;
  }
}

TEST_F(RecordUse, CountsEachStreamOnceFromAnyThread) {
  const auto memory = std::make_shared<ReusingResource>(make_cuda_resource(0));
  Context ctx = make_context(memory);
  std::vector<Stream> streams;
  for (int i = 0; i < 5; ++i) streams.emplace_back(kCuda);
  Tensor x = bytes_of(ctx, 0);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        for (const Stream& stream : streams) x.slice(0, round, kCount).record_use(stream);
        x.record_use(ctx.stream());
        x.record_use(Stream(Device::cpu()));
      }
    });
  for (std::thread& thread : threads) thread.join();
  x = Tensor();
  EXPECT_EQ(memory->last_users(), streams.size());
  expect_error<ShapeError>([&] { x.record_use(ctx.stream()); }, "record_use: the tensor is undefined");
}

TEST_F(RecordUse, K4_UsersMayEndBeforeTheTensor) {
  const auto memory = std::make_shared<ReusingResource>(make_cuda_resource(0));
  Context ctx = make_context(memory);
  Tensor x = bytes_of(ctx, 4);
  std::vector<Tensor> copies;
  for (int i = 0; i < 10; ++i) {
    Context local = make_context();
    local.stream().wait(ctx.stream());
    Tensor y = empty(local, {kCount}, DType::u8);
    copy_async(local, y, x);
    copies.push_back(y);
    ctx.stream().wait(local.stream());
  }
  x = Tensor();
  EXPECT_EQ(memory->last_users(), 10u);
  bytes_of(ctx, 7);
  for (const Tensor& y : copies)
    EXPECT_EQ(to_vector<std::uint8_t>(ctx, y), std::vector<std::uint8_t>(kCount, 4));
}

/// Memory of the caller's whose deleter notes when it ran.
class WrappedMemory : public OnCuda {
 protected:
  /// A tensor over `memory`. The deleter checks that `transfer` is done by then.
  Tensor wrap(const Tensor& memory) {
    return Tensor::from_blob(const_cast<void*>(memory.raw()), memory.shape(), memory.dtype(), kCuda,
                             [this](void*) {
                               ++deleted_;
                               was_done_ = transfer_.is_done();
                             });
  }
  void TearDown() override {
    transfer_ = {};
    OnCuda::TearDown();
  }

  Transfer transfer_;
  int deleted_ = 0;
  bool was_done_ = false;
};

TEST_F(WrappedMemory, DeletersWaitForTheStreamsThatUseIt) {
  Context ctx = make_context();
  const Tensor memory = bytes_of(ctx, 5);
  ctx.synchronize();
  for (int i = 0; i < 100; ++i) {
    Context side = make_context();
    Tensor host = empty_pinned(side, {kCount}, DType::u8);
    delay(side);
    {
      const Tensor x = wrap(memory);
      transfer_ = copy_async(side, host, x);
    }
    if (i % 2 == 0) {
      side.synchronize();
      ASSERT_EQ(deleted_, i + 1);
    }
    host = Tensor();
    // else the end of the stream waits
    side = make_context();
    ASSERT_EQ(deleted_, i + 1);
    ASSERT_TRUE(was_done_) << i;
  }
}

TEST_F(WrappedMemory, DeletersWaitForEveryStream) {
  Context ctx = make_context();
  const Tensor memory = bytes_of(ctx, 5);
  ctx.synchronize();
  Context first = make_context();
  Context second = make_context();
  Tensor a = empty_pinned(first, {kCount}, DType::u8);
  Tensor b = empty_pinned(second, {kCount}, DType::u8);
  {
    const Tensor x = wrap(memory);
    copy_async(first, a, x);
    delay(second);
    transfer_ = copy_async(second, b, x);
  }
  first.synchronize();
  second.synchronize();
  EXPECT_EQ(deleted_, 1);
  EXPECT_TRUE(was_done_);
}

TEST_F(WrappedMemory, DeletersRunAtOnceWhereNoStreamUsesIt) {
  Context ctx = make_context();
  const Tensor memory = bytes_of(ctx, 5);
  ctx.synchronize();
  wrap(memory);
  EXPECT_EQ(deleted_, 1);
}

TEST_F(WrappedMemory, WithoutAnEventTheStreamIsWaitedFor) {
  if (!fake()) GTEST_SKIP() << "calls fail on demand on the fake device only";
  for (const char* function : {"cudaEventCreateWithFlags", "cudaEventRecord"}) {
    Context ctx = make_context();
    const Tensor memory = bytes_of(ctx, 5);
    Tensor host = empty_pinned(ctx, {kCount}, DType::u8);
    const int before = deleted_;
    {
      const Tensor x = wrap(memory);
      transfer_ = copy_async(ctx, host, x);
      fake()->fail_call(1, cudaErrorUnknown, false, function);
    }
    EXPECT_TRUE(fake()->has_failed());
    EXPECT_EQ(deleted_, before + 1) << function;
    EXPECT_TRUE(was_done_);
    transfer_ = {};
  }
}

class StreamOrder : public OnCuda {};

TEST_F(StreamOrder, AStreamWaitsForAnother) {
  Context first = make_context();
  Context second = make_context();
  for (int i = 0; i < 100; ++i) {
    const Tensor host = pinned_bytes(first, i);
    Tensor y = empty(first, {kCount}, DType::u8);
    second.stream().wait(first.stream());  // y is second's to write
    delay(second);
    const Transfer written = copy_async(second, y, host);
    if (i % 3 == 0)
      first.stream().wait(second.stream());
    else if (i % 3 == 1)
      written.then(first.stream());
    else
      Stream(Device::cpu()).wait(second.stream());
    ASSERT_EQ(to_vector<std::uint8_t>(first, y), std::vector<std::uint8_t>(kCount, std::uint8_t(i)));
  }
  first.stream().wait(first.stream());
  first.stream().wait(Stream(Device::cpu()));
}

TEST_F(StreamOrder, PrioritiesAreClampedAndTold) {
  const StreamPriorities range = stream_priorities(kCuda);
  EXPECT_LE(range.greatest, range.least);
  EXPECT_EQ(Stream(kCuda).view().priority(), 0);
  EXPECT_EQ(Stream(kCuda, range.greatest).view().priority(), range.greatest);
  EXPECT_EQ(Stream(kCuda, range.greatest - 100).view().priority(), range.greatest);
  EXPECT_EQ(Stream(kCuda, range.least + 100).view().priority(), range.least);
  const Stream owner(kCuda, range.greatest);
  EXPECT_EQ(Stream::wrap(kCuda, owner.view().native_handle()).view().priority(), range.greatest);
  EXPECT_EQ(Stream(Device::cpu(), 3).view().priority(), 0);
  EXPECT_EQ(stream_priorities(Device::cpu()).greatest, 0);
}

TEST_F(StreamOrder, K17_EventsTimeTheStreamAndAreWaitedForOnce) {
  Context ctx = make_context();
  Event start(kCuda);
  Event end(kCuda);
  Tensor x = bytes_of(ctx, 1);
  Tensor y = bytes_of(ctx, 2);
  start.record(ctx.stream());
  delay(ctx);
  for (int i = 0; i < 50; ++i) copy(ctx, y, x);
  end.record(ctx.stream());
  EXPECT_GT(start.elapsed_ms(end), 0);  // nothing was synchronised before
  EXPECT_TRUE(end.is_done());
  EXPECT_EQ(start.elapsed_ms(start), 0);
}

TEST_F(StreamOrder, K16_ADeviceWaitsForEventsOfAnother) {
  if (cuda_availability().count < 2) GTEST_SKIP() << "needs two CUDA devices";
  Context first = make_context(nullptr, 0);
  Context second = make_context(nullptr, 1);
  Tensor host = pinned_bytes(first, 0);
  const Tensor x = bytes_of(first, 9);
  Tensor y = empty(second, {kCount}, DType::u8);
  copy_async(first, host, x).then(second.stream());
  copy_async(second, y, host);
  EXPECT_EQ(to_vector<std::uint8_t>(second, y), std::vector<std::uint8_t>(kCount, 9));

  Event event(Device::cuda(1));
  expect_error<DeviceError>([&] { event.record(first.stream()); },
                            "the event is of cuda:1, the stream of cuda:0");
  event.record(second.stream());
  first.stream().wait(event);
  Event other(kCuda);
  other.record(first.stream());
  expect_error<DeviceError>([&] { static_cast<void>(event.elapsed_ms(other)); }, "cuda:1 and cuda:0");
  synchronize(kCuda);
  synchronize(Device::cuda(1));
  expect_error<DeviceError>([] { synchronize(Device::cuda(1000)); }, "synchronize: cuda:1000 does not exist");
}

TEST_F(StreamOrder, K6_StreamsOfTwoDevicesInManyThreadsEndInAnyOrder) {
  if (cuda_availability().count < 2) GTEST_SKIP() << "needs two CUDA devices";
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([thread] {
      for (int round = 0; round < 20; ++round) {
        auto a = std::make_unique<Context>(make_context(nullptr, thread % 2));
        auto b = std::make_unique<Context>(make_context(nullptr, 1 - thread % 2));
        const Tensor x = bytes_of(*a, thread + round);
        auto [host, arrived] = to_async(*a, x, Device::cpu());
        arrived.then(b->stream());
        const auto [y, sent] = to_async(*b, host, b->device());
        if (round % 2 == 0) a.reset();
        EXPECT_EQ(to_vector<std::uint8_t>(*b, y),
                  std::vector<std::uint8_t>(kCount, std::uint8_t(thread + round)));
        b.reset();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

class Transfers : public OnCuda {};

TEST_F(Transfers, GoBothWaysWithoutWaiting) {
  Context ctx = make_context();
  const Tensor host = pinned_bytes(ctx, 6);
  const auto [x, sent] = to_async(ctx, host, kCuda);
  EXPECT_EQ(x.device(), kCuda);
  const auto [back, arrived] = to_async(ctx, x, Device::cpu());
  EXPECT_EQ(back.buffer()->kind(), MemoryKind::pinned);
  const Transfer same = arrived;
  arrived.wait();
  EXPECT_TRUE(holds(back, 6));
  EXPECT_TRUE(same.is_done());
  EXPECT_TRUE(sent.is_done());
  sent.wait();
  EXPECT_TRUE(Transfer().is_done());
  EXPECT_EQ(to_async(ctx, x, kCuda).tensor.raw(), x.raw());
}

TEST_F(Transfers, RefuseWhatWouldWait) {
  Context ctx = make_context();
  Context cpu;
  const Tensor pageable = zeros(cpu, {4}, DType::u8);
  Tensor y = zeros(ctx, {4}, DType::u8);
  expect_error<UnsupportedError>([&] { copy_async(ctx, y, pageable); }, "must be pinned");
  expect_error<UnsupportedError>([&] { to_async(ctx, pageable, kCuda); }, "must be pinned");
  const Tensor strided = pinned_bytes(ctx, 0).slice(0, 0, 8, 2);
  expect_error<UnsupportedError>([&] { to_async(ctx, strided, kCuda); }, "dense");
  expect_error<ShapeError>([&] { to_async(ctx, Tensor(), kCuda); }, "to_async: the tensor is undefined");
  expect_error<DeviceError>([&] { to_async(cpu, pageable, kCuda); }, "to_async: cuda:0 is not the context's");
  ContextOptions options;
  options.pinned = make_cpu_resource();
  expect_error<DeviceError>([&] { Context(kCuda, std::move(options)); },
                            "given as pinned is not page-locked");
}

TEST_F(Transfers, FailuresAreReportedAndLeaveNothingBehind) {
  if (!fake()) GTEST_SKIP() << "calls fail on demand on the fake device only";
  int reported = 0;
  for (std::uint64_t n = 1;; ++n) {
    Context ctx = make_context();
    const Tensor host = pinned_bytes(ctx, 6);
    Tensor x = bytes_of(ctx, 1);
    fake()->fail_call(n, cudaErrorUnknown);
    try {
      copy_async(ctx, x, host).wait();
    } catch (const Error&) {  // CudaError, or DeviceError from the question whether there is a device
      ++reported;
    }
    const bool hit = fake()->has_failed();
    fake()->fail_call(0, cudaSuccess);
    copy_async(ctx, x, host).wait();
    EXPECT_EQ(to_vector<std::uint8_t>(ctx, x), std::vector<std::uint8_t>(kCount, 6)) << "call " << n;
    if (!hit) break;
  }
  EXPECT_GE(reported, 5);  // device, event, copy, record, wait
}

}  // namespace
}  // namespace burin::test
