// What memory costs: an allocation and its release, once the memory was there before.
//   <pattern>/<resource>/<bytes>: pattern `pair` allocates and frees; `live64` allocates 64 blocks, then
//   frees them; `touch` is `pair` with a byte written to each page (host memory); `tensor` makes and drops a
//   Tensor through a Context. Threads have a stream each.
// Time is for a pair, of one thread: the counter `pair_ns`. (Google Benchmark's own column divides by
// threads.)

#include <burin/runtime/memory/caching_pool.h>
#include <support/bench_support.h>

#include <array>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>

#include <fmt/format.h>

#ifdef BURIN_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace burin::bench {
namespace {

using Resource = std::shared_ptr<MemoryResource>;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kPageBytes = 4096;
constexpr int kLiveBlocks = 64;

#ifdef BURIN_WITH_CUDA
void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  throw Error(fmt::format("{}: {}", call, cudaGetErrorString(status)));
}

/// The runtime's own pool, which keeps all that is freed; on device 0.
class CudaMallocAsync final : public MemoryResource {
 public:
  CudaMallocAsync() {
    check(cudaDeviceGetDefaultMemPool(&pool_, 0), "cudaDeviceGetDefaultMemPool");
    std::uint64_t keep = UINT64_MAX;
    check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep), "cudaMemPoolSetAttribute");
  }
  ~CudaMallocAsync() override {
    (void)cudaDeviceSynchronize();
    (void)cudaMemPoolTrimTo(pool_, 0);
  }
  void* allocate(std::size_t bytes, StreamView stream) override {
    void* data = nullptr;
    check(cudaMallocAsync(&data, bytes, static_cast<cudaStream_t>(stream.native_handle())),
          "cudaMallocAsync");
    return data;
  }
  void deallocate(void* data, std::size_t, StreamView stream) noexcept override {
    (void)cudaFreeAsync(data, static_cast<cudaStream_t>(stream.native_handle()));
  }
  Device device() const noexcept override { return Device::cuda(); }
  MemoryKind kind() const noexcept override { return MemoryKind::device; }

 private:
  cudaMemPool_t pool_ = nullptr;
};

class CudaMalloc final : public MemoryResource {
 public:
  void* allocate(std::size_t bytes, StreamView) override {
    void* data = nullptr;
    check(cudaMalloc(&data, bytes), "cudaMalloc");
    return data;
  }
  void deallocate(void* data, std::size_t, StreamView) noexcept override { (void)cudaFree(data); }
  Device device() const noexcept override { return Device::cuda(); }
  MemoryKind kind() const noexcept override { return MemoryKind::device; }
};
#endif

class Malloc final : public MemoryResource {
 public:
  void* allocate(std::size_t bytes, StreamView) override {
    void* data = std::malloc(bytes);
    if (data == nullptr) throw std::bad_alloc();
    return data;
  }
  void deallocate(void* data, std::size_t, StreamView) noexcept override { std::free(data); }
  Device device() const noexcept override { return Device::cpu(); }
  MemoryKind kind() const noexcept override { return MemoryKind::host; }
};

/// One step of a pattern: makes `pairs` allocations and as many releases.
struct Pattern {
  int pairs;
  void (*step)(MemoryResource&, std::size_t bytes, StreamView);
};

void pair(MemoryResource& memory, std::size_t bytes, StreamView stream) {
  void* data = memory.allocate(bytes, stream);
  benchmark::DoNotOptimize(data);
  memory.deallocate(data, bytes, stream);
}

void touch(MemoryResource& memory, std::size_t bytes, StreamView stream) {
  auto* data = static_cast<volatile char*>(memory.allocate(bytes, stream));
  for (std::size_t at = 0; at < bytes; at += kPageBytes) data[at] = 1;
  memory.deallocate(const_cast<char*>(data), bytes, stream);
}

void live(MemoryResource& memory, std::size_t bytes, StreamView stream) {
  std::array<void*, kLiveBlocks> blocks;
  for (void*& block : blocks) block = memory.allocate(bytes, stream);
  for (void* block : blocks) memory.deallocate(block, bytes, stream);
}

double nanoseconds(Clock::duration time) { return std::chrono::duration<double, std::nano>(time).count(); }

/// Runs `step` in batches of `steps`, and reports the time of one of its `pairs`.
template <class Step>
void time_steps(benchmark::State& state, int steps, int pairs, Step&& step) {
  step();  // so that the memory is there
  double ns = 0;
  double count = 0;
  while (state.KeepRunningBatch(steps)) {
    const auto begin = Clock::now();
    for (int i = 0; i < steps; ++i) step();
    ns += nanoseconds(Clock::now() - begin);
    count += steps;
  }
  state.counters["pair_ns"] = benchmark::Counter(ns / (count * pairs), benchmark::Counter::kAvgThreads);
}

/// What the threads of one benchmark share. The resource lives while it runs, so that the next one has all
/// of the memory to itself.
struct Shared {
  explicit Shared(int threads) : barrier(threads) {}
  std::barrier<> barrier;
  Resource memory;
  std::string error;
};

void run(benchmark::State& state, Shared& shared, const std::function<Resource()>& make, Pattern pattern,
         int steps, std::size_t bytes) {
  if (state.thread_index() == 0) {
    try {
      shared.memory = make();
    } catch (const std::exception& error) {
      shared.error = error.what();
    }
  }
  shared.barrier.arrive_and_wait();
  const Resource memory = shared.memory;
  const std::string no_memory = shared.error;
  shared.barrier.arrive_and_wait();
  if (state.thread_index() == 0) {
    shared.memory.reset();
    shared.error.clear();
  }
  if (memory == nullptr) {
    state.SkipWithError(no_memory.c_str());
    return;
  }
  try {
    const Stream stream(memory->device());
    time_steps(state, steps, pattern.pairs, [&] { pattern.step(*memory, bytes, stream); });
    stream.synchronize();
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

struct Case {
  const char* pattern;
  const char* resource;
  std::function<Resource()> make;
  Pattern steps;
  int batch;  // steps between two looks at the clock
  int threads;
  std::size_t most_bytes;
};

constexpr std::size_t kSizes[] = {256, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30};

void add(const Case& one) {
  for (const std::size_t bytes : kSizes) {
    if (bytes > one.most_bytes) continue;
    const auto shared = std::make_shared<Shared>(one.threads);
    benchmark::RegisterBenchmark(fmt::format("{}/{}/{}", one.pattern, one.resource, bytes).c_str(),
                                 [shared, one, bytes](benchmark::State& state) {
                                   run(state, *shared, one.make, one.steps, one.batch, bytes);
                                 })
        ->Threads(one.threads)
        ->UseRealTime()
        ->Unit(benchmark::kNanosecond);
  }
}

/// empty() and the tensor's end.
void add_tensor(const char* resource, Device device) {
  for (const std::size_t bytes : kSizes) {
    benchmark::RegisterBenchmark(
        fmt::format("tensor/{}/{}", resource, bytes).c_str(),
        [device, bytes](benchmark::State& state) {
          run_or_skip(state, [&] {
            Context ctx(device, {.memory = std::make_shared<CachingPool>(device)});
            const Shape shape{static_cast<std::int64_t>(bytes)};
            time_steps(state, 256, 1, [&] { benchmark::DoNotOptimize(empty(ctx, shape, DType::u8)); });
          });
        })
        ->Threads(1)
        ->UseRealTime();
  }
}

void register_all() {
  constexpr Pattern kPair{1, pair};
  constexpr Pattern kTouch{1, touch};
  constexpr Pattern kLive{kLiveBlocks, live};
  constexpr std::size_t kAll = 1 << 30;
  constexpr std::size_t kHalf = 256 << 20;  // 64 of them are 16 GiB
  const auto cpu_pool = [] { return std::make_shared<CachingPool>(Device::cpu()); };
  const auto heap = [] { return make_cpu_resource(); };
  const auto malloc = [] { return std::make_shared<Malloc>(); };
#ifdef BURIN_WITH_CUDA
  const auto cuda_pool = [] { return std::make_shared<CachingPool>(Device::cuda()); };
  const auto async = [] { return std::make_shared<CudaMallocAsync>(); };
  const auto driver = [] { return std::make_shared<CudaMalloc>(); };
  for (const int threads : {1, 8}) {
    add({"pair", "cuda_pool", cuda_pool, kPair, 256, threads, kAll});
    add({"pair", "cuda_malloc_async", async, kPair, 256, threads, kAll});
  }
  add({"pair", "cuda_malloc", driver, kPair, 1, 1, kAll});
  add({"live64", "cuda_pool", cuda_pool, kLive, 8, 1, kAll});
  add({"live64", "cuda_malloc_async", async, kLive, 8, 1, kAll});
  add({"live64", "cuda_malloc", driver, kLive, 1, 1, kHalf});
  add_tensor("cuda_pool", Device::cuda());
#endif
  for (const int threads : {1, 8}) {
    add({"pair", "cpu_pool", cpu_pool, kPair, 256, threads, kAll});
    add({"pair", "operator_new", heap, kPair, 256, threads, kAll});
    add({"pair", "malloc", malloc, kPair, 256, threads, kAll});
  }
  add({"touch", "cpu_pool", cpu_pool, kTouch, 1, 1, kAll});
  add({"touch", "operator_new", heap, kTouch, 1, 1, kAll});
  add({"touch", "malloc", malloc, kTouch, 1, 1, kAll});
  add({"live64", "cpu_pool", cpu_pool, kLive, 8, 1, kHalf});
  add({"live64", "operator_new", heap, kLive, 8, 1, kHalf});
  add({"live64", "malloc", malloc, kLive, 8, 1, kHalf});
  add_tensor("cpu_pool", Device::cpu());
}

}  // namespace
}  // namespace burin::bench

int main(int argc, char** argv) {
  burin::bench::register_all();
  return burin::bench::run_registered(argc, argv);
}
