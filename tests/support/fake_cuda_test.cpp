// The fake device does what CUDA does, and shows the mistakes it is there to show.

#include <support/fake_cuda.h>
#include <support/test_support.h>

#include <array>
#include <atomic>
#include <cstring>
#include <numeric>
#include <set>
#include <thread>

#include <gmock/gmock.h>

namespace burin::test {
namespace {

using cuda::api;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kBytes = 64;

cudaStream_t make_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(api().cudaStreamCreateWithPriority(&stream, flags, 0), cudaSuccess);
  return stream;
}
cudaEvent_t make_event(unsigned flags = cudaEventDefault) {
  cudaEvent_t event = nullptr;
  EXPECT_EQ(api().cudaEventCreateWithFlags(&event, flags), cudaSuccess);
  return event;
}
std::byte* make_device(std::size_t bytes = kBytes) {
  void* data = nullptr;
  EXPECT_EQ(api().cudaMalloc(&data, bytes), cudaSuccess);
  return static_cast<std::byte*>(data);
}
std::byte* make_pinned(std::size_t bytes = kBytes) {
  void* data = nullptr;
  EXPECT_EQ(api().cudaHostAlloc(&data, bytes, cudaHostAllocPortable), cudaSuccess);
  return static_cast<std::byte*>(data);
}
cudaError_t queue_fill(void* dst, int value, cudaStream_t stream, std::size_t bytes = kBytes) {
  return api().cudaMemsetAsync(dst, value, bytes, stream);
}
cudaError_t queue_copy(void* dst, const void* src, cudaStream_t stream, std::size_t bytes = kBytes) {
  return api().cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream);
}

TEST(FakeCudaOrder, AMissingWaitShowsAsWrongData) {
  std::set<int> without_wait;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    for (const bool waits : {false, true}) {
      FakeCuda fake({.seed = seed});
      cudaStream_t writer = make_stream();
      cudaStream_t reader = make_stream();
      cudaEvent_t written = make_event(cudaEventDisableTiming);
      std::byte* data = make_device();
      std::byte* result = make_pinned();
      queue_fill(data, 1, writer);
      EXPECT_EQ(api().cudaEventRecord(written, writer), cudaSuccess);
      if (waits) api().cudaStreamWaitEvent(reader, written, 0);
      queue_copy(result, data, reader);
      EXPECT_EQ(api().cudaStreamSynchronize(reader), cudaSuccess);
      const int seen = static_cast<int>(result[kBytes - 1]);
      if (!waits) without_wait.insert(seen);
      EXPECT_TRUE(seen == 1 || !waits) << "seed " << seed;
    }
  }
  EXPECT_EQ(without_wait, (std::set<int>{0, 1}));
}

TEST(FakeCudaOrder, WorkRunsLate) {
  FakeCuda fake;
  cudaStream_t stream = make_stream();
  int runs = 0;
  EXPECT_EQ(fake.launch(stream, [&] { ++runs; }), cudaSuccess);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(fake.pending(), 1U);
  EXPECT_EQ(api().cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(fake.pending(), 0U);
}

TEST(FakeCudaOrder, AStreamRunsInOrderAndQueriesMakeProgress) {
  FakeCuda fake;
  cudaStream_t stream = make_stream();
  std::vector<int> order;
  for (int i = 0; i < 20; ++i) fake.launch(stream, [&order, i] { order.push_back(i); });
  int polls = 0;
  while (api().cudaStreamQuery(stream) == cudaErrorNotReady) ++polls;
  EXPECT_GT(polls, 2);
  EXPECT_EQ(api().cudaGetLastError(), cudaErrorNotReady);
  EXPECT_EQ(api().cudaGetLastError(), cudaSuccess);
  std::vector<int> expected(20);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST(FakeCudaOrder, ASynchronisedStreamDoesNotAlwaysTakeTheOthersAlong) {
  std::set<std::size_t> left;
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    FakeCuda fake({.seed = seed});
    cudaStream_t first = make_stream();
    cudaStream_t second = make_stream();
    for (int i = 0; i < 4; ++i) fake.launch(first, [] {});
    for (int i = 0; i < 4; ++i) fake.launch(second, [] {});
    api().cudaStreamSynchronize(first);
    left.insert(fake.pending());
  }
  EXPECT_GT(left.size(), 2U);
}

TEST(FakeCudaOrder, TheLegacyStreamWaitsForBlockingStreamsAndTheyForIt) {
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    FakeCuda fake({.seed = seed});
    cudaStream_t blocking = make_stream(cudaStreamDefault);
    std::vector<int> order;
    fake.launch(blocking, [&] { order.push_back(1); });
    fake.launch(cudaStream_t{}, [&] { order.push_back(2); });
    fake.launch(blocking, [&] { order.push_back(3); });
    EXPECT_EQ(api().cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_THAT(order, ::testing::ElementsAre(1, 2, 3));
  }
}

TEST(FakeCudaOrder, ADestroyedStreamFinishesItsWork) {
  FakeCuda fake;
  cudaStream_t stream = make_stream();
  std::byte* data = make_pinned();
  queue_fill(data, 3, stream);
  EXPECT_EQ(api().cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(api().cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(static_cast<int>(data[0]), 3);
  EXPECT_THAT(fake.violations(), IsEmpty());
}

TEST(FakeCudaEvents, AWaitMeansTheRecordThatWasLastAtTheCall) {
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    FakeCuda fake({.seed = seed});
    cudaStream_t first = make_stream();
    cudaStream_t second = make_stream();
    cudaEvent_t event = make_event();
    EXPECT_EQ(api().cudaStreamWaitEvent(second, event, 0),
              cudaSuccess);  // never recorded: nothing to wait for
    EXPECT_EQ(fake.pending(), 0U);
    bool early = false;
    bool late = false;
    fake.launch(first, [&] { early = true; });
    api().cudaEventRecord(event, first);
    bool seen = false;
    api().cudaStreamWaitEvent(second, event, 0);
    fake.launch(second, [&] { seen = early; });
    fake.launch(first, [&] { late = true; });
    api().cudaEventRecord(event, first);  // moves the event, not the wait
    EXPECT_EQ(api().cudaStreamSynchronize(second), cudaSuccess);
    EXPECT_TRUE(seen);
    EXPECT_EQ(api().cudaEventSynchronize(event), cudaSuccess);
    EXPECT_TRUE(late);
  }
}

TEST(FakeCudaEvents, QueriesAndElapsedTimes) {
  FakeCuda fake;
  cudaStream_t stream = make_stream();
  cudaEvent_t begin = make_event();
  cudaEvent_t end = make_event();
  cudaEvent_t untimed = make_event(cudaEventDisableTiming);
  float ms = 0;
  EXPECT_EQ(api().cudaEventQuery(begin), cudaSuccess);  // never recorded
  EXPECT_EQ(api().cudaEventElapsedTime(&ms, begin, end), cudaErrorInvalidResourceHandle);
  api().cudaEventRecord(begin, stream);
  for (int i = 0; i < 10; ++i) fake.launch(stream, [] {});
  api().cudaEventRecord(end, stream);
  api().cudaEventRecord(untimed, stream);
  EXPECT_EQ(api().cudaEventQuery(end), cudaErrorNotReady);
  EXPECT_EQ(api().cudaEventElapsedTime(&ms, begin, end), cudaErrorNotReady);
  EXPECT_EQ(api().cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(api().cudaEventQuery(end), cudaSuccess);
  EXPECT_EQ(api().cudaEventElapsedTime(&ms, begin, end), cudaSuccess);
  EXPECT_NEAR(ms, 0.011F, 1e-6F);
  EXPECT_EQ(api().cudaEventElapsedTime(&ms, begin, untimed), cudaErrorInvalidResourceHandle);
  api().cudaSetDevice(1);
  EXPECT_EQ(api().cudaEventRecord(make_event(), stream),
            cudaErrorInvalidResourceHandle);  // of another device
}

TEST(FakeCudaCopies, PageableSourcesAreReadAtTheCallAndPinnedOnesLate) {
  FakeCuda fake;
  cudaStream_t stream = make_stream();
  std::byte* from_pageable = make_device();
  std::byte* from_pinned = make_device();
  std::vector<std::byte> pageable(kBytes, std::byte{1});
  std::byte* pinned = make_pinned();
  std::memset(pinned, 1, kBytes);
  queue_copy(from_pageable, pageable.data(), stream);
  queue_copy(from_pinned, pinned, stream);
  EXPECT_EQ(fake.pending(), 2U);
  std::memset(pageable.data(), 2, kBytes);
  std::memset(pinned, 2, kBytes);
  std::vector<std::byte> result(kBytes);
  queue_copy(result.data(), from_pageable, stream);  // to pageable memory: done when the call returns
  EXPECT_EQ(static_cast<int>(result[0]), 1);
  EXPECT_EQ(fake.pending(), 0U);
  queue_copy(result.data(), from_pinned, stream);
  EXPECT_EQ(static_cast<int>(result[0]), 2);
}

TEST(FakeCudaKernels, ArgumentsAreCopiedAtTheLaunch) {
  FakeCuda fake;
  cudaStream_t stream = make_stream();
  static const char address = 0;
  std::byte* data = make_device();
  fake.set_kernel(&address, {sizeof(std::byte*), sizeof(int)},
                  [](const cudaLaunchConfig_t& config, void** arguments) {
                    std::byte* dst = *static_cast<std::byte**>(arguments[0]);
                    std::memset(dst, *static_cast<int*>(arguments[1]), config.gridDim.x);
                  });
  int value = 5;
  std::byte* target = data;
  std::array<void*, 2> arguments{&target, &value};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(8);
  config.stream = stream;
  EXPECT_EQ(api().cudaLaunchKernelExC(&config, &address, arguments.data()), cudaSuccess);
  value = 6;
  target = nullptr;
  config.gridDim = dim3(1000);
  EXPECT_EQ(api().cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(static_cast<int>(data[7]), 5);
  EXPECT_EQ(static_cast<int>(data[8]), 0);
  static const char unknown = 0;
  EXPECT_EQ(api().cudaLaunchKernelExC(&config, &unknown, nullptr), cudaErrorInvalidDeviceFunction);
}

TEST(FakeCudaMemory, OutOfMemoryIsCountedPerDevice) {
  FakeCuda fake({.total_bytes = 1 << 20});
  void* data = nullptr;
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_EQ(api().cudaMalloc(&data, (1 << 20) + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(api().cudaGetLastError(), cudaErrorMemoryAllocation);
  std::byte* first = make_device(1 << 19);
  EXPECT_EQ(api().cudaMalloc(&data, (1 << 19) + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(api().cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, std::size_t{1} << 19);
  EXPECT_EQ(total, std::size_t{1} << 20);
  EXPECT_EQ(api().cudaFree(first), cudaSuccess);
  std::byte* all = make_device(1 << 20);
  api().cudaSetDevice(1);
  std::byte* other = make_device(1 << 20);
  EXPECT_EQ(fake.live().device_bytes, std::size_t{2} << 20);
  api().cudaFree(all);
  api().cudaFree(other);
  EXPECT_EQ(fake.live(), FakeCuda::Live{});
  EXPECT_THAT(fake.violations(), IsEmpty());
}

TEST(FakeCudaMemory, FreeWaitsForTheDevice) {
  FakeCuda fake;
  cudaStream_t stream = make_stream();
  std::byte* data = make_device();
  bool ran = false;
  fake.launch(stream, [&] { ran = true; }, {{data, kBytes}});
  EXPECT_EQ(api().cudaFree(data), cudaSuccess);
  EXPECT_TRUE(ran);
  EXPECT_THAT(fake.violations(), IsEmpty());
}

TEST(FakeCudaMemory, LiveCountsWhatIsHeld) {
  FakeCuda fake;
  cudaStream_t stream = make_stream();
  cudaEvent_t event = make_event();
  std::byte* pinned = make_pinned(1000);
  EXPECT_EQ(fake.live(), (FakeCuda::Live{.streams = 1, .events = 1, .pinned_bytes = 1024}));
  api().cudaStreamDestroy(stream);
  api().cudaEventDestroy(event);
  api().cudaFreeHost(pinned);
  EXPECT_EQ(fake.live(), FakeCuda::Live{});
}

TEST(FakeCudaViolations, WrongHandlesAndAddresses) {
  FakeCuda fake;
  cudaStream_t stream = make_stream();
  cudaEvent_t event = make_event();
  std::byte* data = make_device();
  EXPECT_EQ(queue_fill(data, 1, stream, kBytes + 1), cudaErrorInvalidValue);
  EXPECT_THAT(fake.violations(), Contains(HasSubstr("end outside their allocation")));
  api().cudaFree(data);
  EXPECT_EQ(api().cudaFree(data), cudaErrorInvalidValue);
  EXPECT_THAT(fake.violations(), Contains(HasSubstr("cudaFree: ")));
  EXPECT_EQ(api().cudaFreeHost(&fake), cudaErrorInvalidValue);
  EXPECT_THAT(fake.violations(), Contains(HasSubstr("cudaFreeHost: ")));
  EXPECT_EQ(queue_fill(data, 1, stream), cudaErrorInvalidValue);
  EXPECT_THAT(fake.violations(), Contains(HasSubstr("freed, unmapped or was never allocated")));
  api().cudaStreamDestroy(stream);
  api().cudaEventDestroy(event);
  EXPECT_EQ(api().cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_THAT(fake.violations(), Contains(HasSubstr("cudaStreamSynchronize: stream")));
  EXPECT_EQ(api().cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
  EXPECT_THAT(fake.violations(), Contains(HasSubstr("cudaEventDestroy: event")));
  EXPECT_EQ(api().cudaGraphDestroy(nullptr), cudaErrorInvalidValue);
  EXPECT_THAT(fake.violations(), Contains(HasSubstr("cudaGraphDestroy")));
}

TEST(FakeCudaFailures, TheNthCallFails) {
  FakeCuda fake;
  const std::uint64_t before = fake.calls();
  fake.fail_call(2, cudaErrorUnknown);
  int device = 0;
  EXPECT_EQ(api().cudaGetDevice(&device), cudaSuccess);
  EXPECT_FALSE(fake.has_failed());
  EXPECT_EQ(api().cudaGetDevice(&device), cudaErrorUnknown);
  EXPECT_TRUE(fake.has_failed());
  EXPECT_EQ(api().cudaGetLastError(), cudaErrorUnknown);
  EXPECT_EQ(api().cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(fake.calls() - before, 3U);
  EXPECT_EQ(fake.call_count("cudaGetDevice"), 3U);
  EXPECT_EQ(fake.call_count("cudaMalloc"), 0U);

  void* data = nullptr;
  fake.fail_call(1, cudaErrorMemoryAllocation, true, "cudaMalloc");
  EXPECT_EQ(api().cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(api().cudaMalloc(&data, 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(api().cudaMalloc(&data, 1), cudaErrorMemoryAllocation);
  fake.fail_call(0, cudaSuccess);
  EXPECT_EQ(api().cudaMalloc(&data, 1), cudaSuccess);

  fake.fail_call(1, cudaErrorUnknown);
  EXPECT_EQ(api().cudaFree(data), cudaErrorUnknown);  // freed nevertheless
  EXPECT_EQ(fake.live(), FakeCuda::Live{});
}

TEST(FakeCudaFailures, TheLastErrorIsOfTheThread) {
  FakeCuda fake;
  fake.fail_call(1, cudaErrorUnknown);
  std::thread([] { EXPECT_EQ(api().cudaDeviceSynchronize(), cudaErrorUnknown); }).join();
  EXPECT_EQ(api().cudaGetLastError(), cudaSuccess);
}

TEST(FakeCudaFailures, AfterUnloadingEveryCallSaysSo) {
  FakeCuda fake;
  cudaStream_t stream = make_stream();
  EXPECT_FALSE(cuda::is_unloading());
  fake.unload();
  EXPECT_TRUE(cuda::is_unloading());
  EXPECT_EQ(api().cudaStreamDestroy(stream), cudaErrorCudartUnloading);
  EXPECT_EQ(api().cudaGetLastError(), cudaErrorCudartUnloading);
}

TEST(FakeCudaRuntime, BurinRunsOnIt) {
  FakeCuda fake;
  {
    Context ctx(Device::cuda(1));
    const Tensor x = from_host(ctx, std::vector<float>{1, 2, 3, 4}, Shape{4});
    const Tensor y = clone(ctx, x);
    EXPECT_THAT(to_vector<float>(ctx, y), ::testing::ElementsAre(1, 2, 3, 4));
  }
  EXPECT_EQ(fake.live(), FakeCuda::Live{});
  EXPECT_THAT(fake.violations(), IsEmpty());
}

TEST(FakeCudaThreads, EightThreadsOnTwoDevices) {
  FakeCuda fake;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  const int rounds = sweep(5000);
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      api().cudaSetDevice(thread % 2);
      cudaStream_t first = make_stream();
      cudaStream_t second = make_stream();
      cudaEvent_t event = make_event(cudaEventDisableTiming);
      std::byte* data = make_device();
      std::byte* result = make_pinned();
      for (int round = 0; round < rounds; ++round) {
        queue_fill(data, round % 100, first);
        api().cudaEventRecord(event, first);
        api().cudaStreamWaitEvent(second, event, 0);
        queue_copy(result, data, second);
        api().cudaEventRecord(event, second);
        api().cudaStreamWaitEvent(first, event, 0);
        if (round % 16 != 0) continue;
        api().cudaEventSynchronize(event);
        wrong += static_cast<int>(result[kBytes - 1]) != round % 100;
      }
      api().cudaFree(data);
      api().cudaFreeHost(result);
      api().cudaEventDestroy(event);
      api().cudaStreamDestroy(first);
      api().cudaStreamDestroy(second);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(fake.live(), FakeCuda::Live{});
  EXPECT_THAT(fake.violations(), IsEmpty());
}

}  // namespace
}  // namespace burin::test
