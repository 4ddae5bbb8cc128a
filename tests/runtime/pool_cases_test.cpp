// The caching pool on a device: growth in place, the order of streams, recovery, threads, the end of things.

#include <burin/runtime/copy.h>
#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/event.h>
#include <burin/runtime/memory/caching_pool.h>
#include <burin/runtime/name_scope.h>
#include <support/cuda_fixture.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace burin::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::size_t free_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  cuda::memory_info(0, &free, &total);
  return free;
}

class PoolCases : public OnCuda {
 protected:
  static std::shared_ptr<CachingPool> make_pool(CachingPoolOptions options = {}) {
    return std::make_shared<CachingPool>(Device::cuda(), options);
  }
};

TEST_F(PoolCases, SegmentsGrowInPlace) {
  const auto pool = make_pool();
  const Stream stream(Device::cuda());
  auto* first = static_cast<char*>(pool->allocate(4 * kMiB, stream));
  pool->deallocate(first, 0, stream);
  void* larger = pool->allocate(6 * kMiB, stream);
  EXPECT_EQ(larger, first) << "the free block has grown";
  EXPECT_EQ(pool->stats().reserved_bytes.current, 6 * kMiB);
  pool->deallocate(larger, 0, stream);
}

TEST_F(PoolCases, FragmentsAreGivenBackBeforeThePoolGrows) {
  const auto pool = make_pool();
  const Stream stream(Device::cuda());
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(pool->allocate(16 * kMiB, stream));
  for (std::size_t i = 0; i < blocks.size(); i += 2) pool->deallocate(blocks[i], 0, stream);
  void* large = pool->allocate(60 * kMiB, stream);
  EXPECT_LE(pool->stats().reserved_bytes.current, (64 + 60 + 4) * kMiB) << "not 128 and 60";
  pool->deallocate(large, 0, stream);
  for (std::size_t i = 1; i < blocks.size(); i += 2) pool->deallocate(blocks[i], 0, stream);
  const std::size_t reserved = pool->stats().reserved_bytes.current;
  EXPECT_EQ(pool->trim(), reserved);
}

TEST_F(PoolCases, StreamsKeepTheirMemoryUntilTheLimit) {
  const auto pool = make_pool({.limit_bytes = 8 * kMiB});
  const Stream first(Device::cuda());
  const Stream second(Device::cuda());
  void* a = pool->allocate(4 * kMiB, first);
  pool->deallocate(a, 0, first);
  void* b = pool->allocate(4 * kMiB, second);
  EXPECT_NE(a, b) << "no stream waits while there is memory";
  EXPECT_EQ(pool->stats().stream_waits, 0u);
  void* c = pool->allocate(4 * kMiB, second);
  EXPECT_EQ(c, a) << "at the limit the first stream's is taken over";
  EXPECT_EQ(pool->stats().stream_waits, 1u);
  pool->deallocate(b, 0, second);
  pool->deallocate(c, 0, second);
}

TEST_F(PoolCases, K1_AFailureThatIsRecoveredLeavesNoErrorBehind) {
  if (!fake()) GTEST_SKIP() << "calls fail on demand on the fake device only";
  const auto pool = make_pool();
  const Stream stream(Device::cuda());
  pool->deallocate(pool->allocate(kMiB, stream), 0, stream);
  fake()->fail_call(1, cudaErrorMemoryAllocation, false, "cuMemCreate");
  void* data = pool->allocate(8 * kMiB, stream);
  EXPECT_TRUE(fake()->has_failed());
  EXPECT_EQ(cuda::api().cudaGetLastError(), cudaSuccess);
  pool->deallocate(data, 0, stream);
}

TEST_F(PoolCases, K3_RunsThatFailInTheMiddleGiveBackWhatTheyTook) {
  const auto pool = make_pool({.limit_bytes = 64 * kMiB});
  Context ctx = make_context(pool);
  const std::vector<float> values(1000, 3);
  const Tensor kept = from_host(ctx, values, {1000});
  const std::size_t before = pool->stats().allocated_bytes.current;
  for (int i = 0; i < 100; ++i) {
    EXPECT_THROW(
        {
          const Tensor x = clone(ctx, kept);
          const Tensor y = empty(ctx, {4, 1 << 20});
          const Tensor z = empty(ctx, {1 << 30});
        },
        OutOfMemory);
    ASSERT_EQ(pool->stats().allocated_bytes.current, before);
  }
  EXPECT_EQ(pool->stats().out_of_memory, 100u);
  EXPECT_EQ(to_vector<float>(ctx, kept), values);
}

TEST_F(PoolCases, K4_WhatEndedStreamsFreedIsReused) {
  const auto pool = make_pool();
  std::vector<void*> freed;
  {
    std::vector<Stream> streams;
    for (int i = 0; i < 10; ++i) streams.emplace_back(Device::cuda());
    for (const Stream& stream : streams) freed.push_back(pool->allocate(2 * kMiB, stream));
    for (std::size_t i = 0; i < streams.size(); ++i) pool->deallocate(freed[i], 0, streams[i]);
  }
  const std::size_t reserved = pool->stats().reserved_bytes.current;
  const Stream stream(Device::cuda());
  std::vector<void*> again;
  for (int i = 0; i < 10; ++i) again.push_back(pool->allocate(2 * kMiB, stream));
  EXPECT_EQ(pool->stats().reserved_bytes.current, reserved);
  for (void* data : again) pool->deallocate(data, 0, stream);
}

TEST_F(PoolCases, WhatAStreamFreedIsReusedEvenIfItsEndCannotBeMarked) {
  if (!fake()) GTEST_SKIP() << "calls fail on demand on the fake device only";
  for (const char* call : {"cudaEventCreateWithFlags", "cudaEventRecord"}) {
    const auto pool = make_pool({.limit_bytes = 4 * kMiB});
    std::optional<Stream> ended(Device::cuda());
    void* data = pool->allocate(4 * kMiB, *ended);
    BURIN_CUDA("test", cudaMemsetAsync, data, 0, 4 * kMiB,
               static_cast<cudaStream_t>(ended->view().native_handle()));
    pool->deallocate(data, 0, *ended);
    fake()->fail_call(1, cudaErrorInvalidValue, false, call);
    ended.reset();
    EXPECT_TRUE(fake()->has_failed());
    fake()->fail_call(0, cudaSuccess);
    EXPECT_EQ(fake()->pending(), 0u) << "it is waited for";
    const Stream next(Device::cuda());
    EXPECT_EQ(pool->allocate(4 * kMiB, next), data);
    pool->deallocate(data, 0, next);
    EXPECT_EQ(pool->trim(), 4 * kMiB);
  }
}

TEST_F(PoolCases, K6_TwoDevicesInOneThread) {
  if (cuda_availability().count < 2) GTEST_SKIP() << "one device";
  std::optional<CachingPool> pools[2];
  std::optional<Stream> streams[2];
  void* data[2];
  for (int i : {0, 1}) {
    pools[i].emplace(Device::cuda(i));
    streams[i].emplace(Device::cuda(i));
    data[i] = pools[i]->allocate(kMiB, *streams[i]);
  }
  pools[1]->deallocate(data[1], 0, *streams[1]);
  streams[1].reset();
  pools[0]->deallocate(data[0], 0, *streams[0]);
  pools[1].reset();
  streams[0].reset();
  pools[0].reset();
}

TEST_F(PoolCases, K10_APoolMayOutliveTheDriver) {
  if (!fake()) GTEST_SKIP() << "the driver goes on demand on the fake device only";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const auto pool = make_pool();
        const Stream stream(Device::cuda());
        pool->deallocate(pool->allocate(kMiB, stream), 0, stream);
        static_cast<void>(pool->allocate(3 * kMiB, stream));
        fake()->unload();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(PoolCases, K18_ThreadsMakeAndUseContextsAtOnce) {
  const auto pool = make_pool();
  std::vector<std::thread> threads;
  std::vector<int> wrong(8);
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        Context ctx = make_context(round % 2 ? pool : nullptr);
        const std::vector<float> values(10000, static_cast<float>(i * 100 + round));
        const Tensor x = clone(ctx, from_host(ctx, values, {10000}));
        wrong[static_cast<std::size_t>(i)] += to_vector<float>(ctx, x) != values;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(8, 0));
}

TEST_F(PoolCases, NothingIsLeftAfterAThousandPools) {
  std::size_t before = 0;
  for (int i = 0; i <= 1000; ++i) {
    {
      Context ctx = make_context(make_pool());
      const Tensor x = from_host(ctx, std::vector<float>(1 << 18, 1), {1 << 18});
      const Tensor y = clone(ctx, x);
      Tensor host = empty_pinned(ctx, {1 << 18});
      copy_async(ctx, host, y).wait();
    }
    if (i == 0) before = free_bytes();  // what CUDA itself takes at the first use is taken
  }
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(PoolCases, SnapshotsAndTimelinesNameTheScope) {
  const auto pool = make_pool({.timeline_events = 100});
  Context ctx = make_context(pool);
  Tensor x;
  {
    const NameScope outer(ctx, "net");
    const NameScope inner(ctx, "conv1");
    x = empty(ctx, {1000});
  }
  const PoolSnapshot snapshot = pool->snapshot();
  ASSERT_EQ(snapshot.segments.size(), 1u);
  EXPECT_EQ(snapshot.segments[0].blocks.at(0).scope, "net.conv1");
  EXPECT_EQ(snapshot.segments[0].blocks.at(0).requested_bytes, 4000u);
  EXPECT_EQ(snapshot.segments[0].blocks.at(0).stream, ctx.stream().id());
  x = Tensor();
  std::vector<PoolEvent::Kind> kinds;
  for (const PoolEvent& event : pool->timeline()) kinds.push_back(event.kind);
  EXPECT_EQ(kinds,
            (std::vector{PoolEvent::Kind::grow, PoolEvent::Kind::allocate, PoolEvent::Kind::deallocate}));
  EXPECT_EQ(pool->timeline()[1].scope, "net.conv1");
  EXPECT_EQ(pool->timeline()[1].allocated_bytes, 4096u);
  EXPECT_EQ(pool->timeline()[1].reserved_bytes, 2 * kMiB);
  EXPECT_EQ(pool->timeline()[2].allocated_bytes, 0u);
}

TEST_F(PoolCases, ThreadsShareANewStreamWhoseIdFallsWhereAnEndedOneWas) {
  const auto pool = make_pool();
  for (int round = 0; round < 200; ++round) {
    const Stream stream(Device::cuda());
    for (int i = 0; i < 63; ++i) const Stream other(Device::cpu());
    std::atomic<int> ready{0};
    const auto work = [&] {
      for (++ready; ready < 2;) {
      }
      for (int i = 0; i < 3; ++i) pool->deallocate(pool->allocate(256, stream), 0, stream);
    };
    std::thread first(work);
    std::thread second(work);
    first.join();
    second.join();
  }
}

TEST_F(PoolCases, PoolsGraphPoolsAndStreamsEndAtOnce) {
  for (int round = 0; round < 100; ++round) {
    auto pool = make_pool();
    GraphPool graph_pool = pool->make_graph_pool();
    std::optional<Stream> one(Device::cuda());
    std::optional<Stream> two(Device::cuda());
    for (const Stream* stream : {&*one, &*two}) {
      void* data = pool->allocate(kMiB, *stream);
      BURIN_CUDA("test", cudaMemsetAsync, data, 0, kMiB,
                 static_cast<cudaStream_t>(stream->view().native_handle()));
      pool->deallocate(data, 0, *stream);
    }
    std::array threads{std::thread([&] { one.reset(); }), std::thread([&] { pool.reset(); }),
                       std::thread([&] { two.reset(); }), std::thread([&] { graph_pool = {}; })};
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(PlainPoolCases, ASegmentWhoseWaitFailsIsGivenBack) {
  FakeCuda fake;
  {
    CachingPool pool(make_cuda_resource(0));
    const Stream stream(Device::cuda());
    fake.fail_call(1, cudaErrorInvalidValue, false, "cudaStreamSynchronize");
    EXPECT_THROW(pool.allocate(kMiB, stream), CudaError);
    fake.fail_call(0, cudaSuccess);
  }
  EXPECT_EQ(fake.live(), FakeCuda::Live());
}

TEST(PlainPoolCases, ADeviceWithoutVirtualMemoryIsServedByPlainSegments) {
  const FakeCuda fake({.virtual_memory = false});
  {
    CachingPool pool(Device::cuda());
    const Stream stream(Device::cuda());
    void* a = pool.allocate(5 * kMiB, stream);
    pool.deallocate(a, 0, stream);
    EXPECT_EQ(pool.allocate(3 * kMiB, stream), a);
    EXPECT_EQ(pool.stats().reserved_bytes.current, 6 * kMiB);
    EXPECT_EQ(fake.call_count("cudaMalloc"), 1u);
    EXPECT_EQ(fake.live().device_bytes, 6 * kMiB);
    pool.deallocate(a, 0, stream);
  }
  EXPECT_EQ(fake.live(), FakeCuda::Live());
  EXPECT_TRUE(fake.violations().empty());
}

}  // namespace
}  // namespace burin::test
