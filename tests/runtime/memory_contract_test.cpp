// What every memory resource promises (memory_resource.h). Where there is no GPU, device and page-locked
// memory are those of the fake device.

#include <burin/runtime/config.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/event.h>
#include <burin/runtime/memory/adaptors.h>
#include <burin/runtime/memory/caching_pool.h>
#include <burin/runtime/memory/debug_resource.h>
#include <support/test_support.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#if defined(BURIN_WITH_CUDA)
#include <support/fake_cuda.h>
#endif

namespace burin::test {
namespace {

using Resource = std::shared_ptr<MemoryResource>;

/// A resource by itself, or one adaptor over it.
struct Stack {
  std::string name;
  MemoryKind kind = MemoryKind::host;
  std::function<Resource()> make_base;
  std::function<Resource(Resource)> adapt;  // none: the base is tested
};

std::ostream& operator<<(std::ostream& out, const Stack& stack) { return out << stack.name; }

Resource make_callbacks(const Resource& upstream) {
  // Those below take no notice of the stream.
  return std::make_shared<CallbackResource>(
      upstream->device(), upstream->kind(),
      AllocatorCallbacks{
          .allocate = [upstream](std::size_t bytes, std::size_t, void*) -> void* {
            try {
              return upstream->allocate(bytes, StreamView());
            } catch (const OutOfMemory&) {
              return nullptr;
            }
          },
          .deallocate = [upstream](void* data, std::size_t bytes,
                                   void*) { upstream->deallocate(data, bytes, StreamView()); }});
}

std::vector<Stack> stacks() {
  using std::chrono::microseconds;
  struct Base {
    std::string name;
    MemoryKind kind;
    std::function<Resource()> make;
    bool ordered_by_stream;  // must be told of it
  };
  const std::vector<Base> bases = {
      {"cpu", MemoryKind::host, make_cpu_resource, false},
      {"pinned", MemoryKind::pinned, make_pinned_resource, false},
      {"cuda", MemoryKind::device, [] { return make_cuda_resource(0); }, false},
      {"cpu_pool", MemoryKind::host, [] { return std::make_shared<CachingPool>(Device::cpu()); }, true},
      {"pinned_pool", MemoryKind::pinned, [] { return make_pinned_pool(); }, true},
      {"cuda_pool", MemoryKind::device, [] { return std::make_shared<CachingPool>(Device::cuda(0)); }, true},
      {"upstream_pool", MemoryKind::device,
       [] { return std::make_shared<CachingPool>(make_cuda_resource(0)); }, true},
  };
  const std::vector<std::pair<std::string, std::function<Resource(Resource)>>> adaptors = {
      {"counting", [](Resource up) { return std::make_shared<CountingResource>(std::move(up)); }},
      {"limiting",
       [](Resource up) { return std::make_shared<LimitingResource>(std::move(up), std::size_t{1} << 30); }},
      {"failing", [](Resource up) { return std::make_shared<FailingResource>(std::move(up)); }},
      {"delaying",
       [](Resource up) {
         return std::make_shared<DelayingResource>(std::move(up), microseconds(0), microseconds(20));
       }},
      {"debug", [](Resource up) { return std::make_shared<DebugResource>(std::move(up)); }},
  };
  std::vector<Stack> all;
  for (const Base& base : bases) {
    all.push_back({base.name, base.kind, base.make, {}});
    for (const auto& [name, adapt] : adaptors)
      all.push_back({name + "_over_" + base.name, base.kind, base.make, adapt});
    if (!base.ordered_by_stream)
      all.push_back({"callbacks_over_" + base.name, base.kind, base.make, make_callbacks});
  }
  return all;
}

struct Block {
  unsigned char* data = nullptr;
  std::size_t bytes = 0;
  StreamView stream{};
  unsigned char pattern = 0;
};

class MemoryContract : public ::testing::TestWithParam<Stack> {
 protected:
  void SetUp() override {
    if (GetParam().kind != MemoryKind::host) {
#if defined(BURIN_WITH_CUDA)
      if (takes_fake_cuda()) fake_ = std::make_unique<FakeCuda>();
#else
      GTEST_SKIP() << cuda_availability().reason;
#endif
    }
    memory_ = GetParam().make_base();
    if (!GetParam().adapt) return;
    counting_ = std::make_shared<CountingResource>(memory_);
    memory_ = GetParam().adapt(counting_);
  }

  void TearDown() override {
    if (!memory_) return;
    if (scratch_) make_cuda_resource(0)->deallocate(scratch_, kScratchBytes, *scratch_stream_);
    scratch_stream_.reset();
    if (counting_) {
      EXPECT_EQ(counting_->counts().live_bytes, 0u);
    }
    if (const auto* pool = dynamic_cast<const CachingPool*>(memory_.get())) {
      EXPECT_EQ(pool->stats().allocated_bytes.current, 0u);
      EXPECT_EQ(pool->stats().invalid_frees, 0u);
    }
    if (const auto* debug = dynamic_cast<const DebugResource*>(memory_.get())) {
      EXPECT_NO_THROW(debug->check());
    }
    counting_.reset();
    memory_.reset();
#if defined(BURIN_WITH_CUDA)
    if (!fake_) return;
    EXPECT_EQ(fake_->violations(), std::vector<std::string>());
    EXPECT_TRUE(fake_->live() == FakeCuda::Live());
#endif
  }

  bool on_device() const { return GetParam().kind == MemoryKind::device; }
  Stream make_stream() const { return Stream(on_device() ? Device::cuda(0) : Device::cpu()); }

  Block allocate(std::size_t bytes, StreamView stream, unsigned char pattern) {
    const Block block{static_cast<unsigned char*>(memory_->allocate(bytes, stream)), bytes, stream, pattern};
    fill(block);
    return block;
  }
  void free(const Block& block) { memory_->deallocate(block.data, block.bytes, block.stream); }

  void fill(const Block& block) const {
    if (!on_device())
      std::memset(block.data, block.pattern, block.bytes);
    else if constexpr (kHasCuda)
      cuda::fill(block.stream, DType::u8, block.data, static_cast<std::int64_t>(block.bytes), block.pattern);
  }
  /// Queued on a CUDA stream, done at once on the CPU's.
  static void copy(StreamView stream, void* dst, const void* src, std::size_t bytes) {
    if (stream.device().is_cpu())
      std::memcpy(dst, src, bytes);
    else if constexpr (kHasCuda)
      cuda::copy_bytes(stream, dst, src, bytes);
  }
  static bool holds(StreamView stream, const void* data, std::size_t bytes, unsigned char pattern) {
    std::vector<unsigned char> values(bytes);
    copy(stream, values.data(), data, bytes);
    stream.synchronize();
    return std::all_of(values.begin(), values.end(), [&](unsigned char value) { return value == pattern; });
  }
  static bool is_intact(const Block& block) {
    return holds(block.stream, block.data, block.bytes, block.pattern);
  }

  /// Work that keeps a GPU busy for a while; the fake device is late by itself.
  void delay(StreamView stream) {
    if (stream.device().is_cpu() || is_fake()) return;
    if constexpr (kHasCuda) {
      if (!scratch_) {
        scratch_stream_.emplace(Device::cuda(0));
        scratch_ = make_cuda_resource(0)->allocate(kScratchBytes, *scratch_stream_);
      }
      for (int i = 0; i < 8; ++i)
        cuda::fill(stream, DType::u8, scratch_, static_cast<std::int64_t>(kScratchBytes), 0);
    }
  }
  bool is_fake() const {
#if defined(BURIN_WITH_CUDA)
    return fake_ != nullptr;
#else
    return false;
#endif
  }

  static constexpr std::size_t kScratchBytes = std::size_t{64} << 20;
#if defined(BURIN_WITH_CUDA)
  std::unique_ptr<FakeCuda> fake_;
#endif
  std::shared_ptr<CountingResource> counting_;  // below the adaptor, if there is one
  Resource memory_;
  std::optional<Stream> scratch_stream_;
  void* scratch_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(All, MemoryContract, ::testing::ValuesIn(stacks()),
                         [](const ::testing::TestParamInfo<Stack>& param) { return param.param.name; });

TEST_P(MemoryContract, TellsItsDeviceAndKind) {
  EXPECT_EQ(memory_->kind(), GetParam().kind);
  EXPECT_EQ(memory_->device(), on_device() ? Device::cuda(0) : Device::cpu());
}

TEST_P(MemoryContract, NoBytesAreNoMemory) {
  const Stream stream = make_stream();
  EXPECT_EQ(memory_->allocate(0, stream), nullptr);
  memory_->deallocate(nullptr, 0, stream);
  memory_->deallocate_after(nullptr, 0, stream, {});
}

TEST_P(MemoryContract, BlocksAreAlignedAndApartAndKeepWhatTheyHold) {
  constexpr std::size_t kBytes[] = {1, 255, 256, 257, 4096, 5000, 100000, 1 << 20, 3 << 20};
  const Stream stream = make_stream();
  std::vector<Block> live;
  unsigned char pattern = 0;
  for (int round = 0; round < 4; ++round) {
    for (const std::size_t bytes : kBytes) live.push_back(allocate(bytes, stream, ++pattern));
    std::sort(live.begin(), live.end(), [](const Block& a, const Block& b) { return a.data < b.data; });
    for (std::size_t i = 0; i < live.size(); ++i) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(live[i].data) % MemoryResource::kAlignment, 0u);
      if (i > 0) {
        EXPECT_LE(live[i - 1].data + live[i - 1].bytes, live[i].data);
      }
      EXPECT_TRUE(is_intact(live[i])) << live[i].bytes << " bytes in round " << round;
    }
    std::vector<Block> kept;
    for (std::size_t i = 0; i < live.size(); ++i) i % 2 == 0 ? free(live[i]) : kept.push_back(live[i]);
    live = kept;
  }
  for (const Block& block : live) free(block);
}

TEST_P(MemoryContract, AStreamReusesMemoryInItsOrder) {
  const Stream stream = make_stream();
  for (std::size_t bytes = 100; bytes < 3'000'000; bytes *= 3) {
    const Block kept = allocate(bytes, stream, 0);
    const Block first = allocate(bytes, stream, 1);
    delay(stream);
    copy(stream, kept.data, first.data, bytes);
    free(first);
    const Block second = allocate(bytes, stream, 2);
    EXPECT_TRUE(holds(stream, kept.data, bytes, 1)) << bytes;
    EXPECT_TRUE(is_intact(second)) << bytes;
    free(second);
    free(kept);
  }
}

TEST_P(MemoryContract, OtherStreamsReuseMemoryAfterTheWorkQueuedAtItsFree) {
  const Stream first = make_stream();
  const Stream second = make_stream();
  constexpr std::size_t kBytes = 1 << 20;
  for (int round = 0; round < 20; ++round) {
    const Block kept = allocate(kBytes, first, 0);
    std::vector<Block> freed;
    for (int i = 0; i < 4; ++i) freed.push_back(allocate(kBytes, first, 1));
    delay(first);
    for (const Block& block : freed) copy(first, kept.data, block.data, kBytes);
    for (const Block& block : freed) free(block);
    std::vector<Block> reused;
    for (int i = 0; i < 4; ++i) reused.push_back(allocate(kBytes, second, 2));
    for (const Block& block : reused) EXPECT_TRUE(is_intact(block)) << "round " << round;
    EXPECT_TRUE(holds(first, kept.data, kBytes, 1)) << "round " << round;
    for (const Block& block : reused) free(block);
    free(kept);
  }
}

TEST_P(MemoryContract, K8_MemoryIsReusedAfterTheWorkOfItsUsers) {
  const bool pageable = GetParam().kind == MemoryKind::host;
  const Device users_device = pageable ? Device::cpu() : Device::cuda(0);
  const Stream stream = make_stream();
  const Stream users[] = {Stream(users_device), Stream(users_device)};
  const StreamView views[] = {users[0], users[1]};
  const Resource plain = pageable ? make_cpu_resource() : make_cuda_resource(0);
  constexpr std::size_t kBytes = 1 << 20;
  void* kept[] = {plain->allocate(kBytes, users[0]), plain->allocate(kBytes, users[1])};
  for (int round = 0; round < 20; ++round) {
    const Block block = allocate(kBytes, stream, 1);
    Event ready(stream.view().device(), {.timing = false});
    ready.record(stream);
    for (int i = 0; i < 2; ++i) {
      users[i].wait(ready);
      delay(users[i]);
      copy(users[i], kept[i], block.data, kBytes);
    }
    memory_->deallocate_after(block.data, kBytes, stream, views);
    const Block next = allocate(kBytes, stream, 2);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(holds(users[i], kept[i], kBytes, 1)) << "round " << round;
    EXPECT_TRUE(is_intact(next)) << "round " << round;
    free(next);
  }
  for (int i = 0; i < 2; ++i) plain->deallocate(kept[i], kBytes, users[i]);
}

TEST_P(MemoryContract, ImpossibleRequestsAreOutOfMemoryAndLeaveItUsable) {
  const Stream stream = make_stream();
  for (const std::size_t bytes : {std::size_t{1} << 50, SIZE_MAX, SIZE_MAX - 255}) {
    try {
      memory_->allocate(bytes, stream);
      FAIL() << bytes << " bytes were allocated";
    } catch (const OutOfMemory& error) {
      EXPECT_EQ(error.figures().requested, bytes);
    }
    const Block block = allocate(1000, stream, 1);
    EXPECT_TRUE(is_intact(block));
    free(block);
  }
}

TEST_P(MemoryContract, AnotherThreadMayFree) {
  const Stream stream = make_stream();
  for (int round = 0; round < 5; ++round) {
    std::vector<Block> blocks;
    for (unsigned char i = 0; i < 20; ++i) blocks.push_back(allocate(1000u * i + 1, stream, i));
    std::thread([&] {
      for (const Block& block : blocks) free(block);
    }).join();
    const Block next = allocate(5000, stream, 99);
    EXPECT_TRUE(is_intact(next));
    free(next);
  }
}

TEST_P(MemoryContract, K5_FourThreadsAtRandom) {
  std::mutex mutex;
  std::vector<Block> mailbox;  // through which they free each other's blocks
  std::atomic<int> wrong{0};
  std::vector<Stream> streams;
  for (int t = 0; t < 4; ++t) streams.push_back(make_stream());
  const Random seed(5);
  const auto use = [&](std::uint64_t t) {
    std::mt19937_64 random(seed.seed() + t);
    std::vector<Block> live;
    const auto free_one = [&](std::size_t i) {
      if (!is_intact(live[i])) ++wrong;
      live[i].pattern = 0xEE;  // late, this would be seen in the block's next life
      fill(live[i]);
      free(live[i]);
      live[i] = live.back();
      live.pop_back();
    };
    for (int step = 0; step < 2000; ++step) {
      const std::uint64_t choice = random() % 10;
      if (live.size() < 12 && choice < 5) {
        const std::size_t bytes = (std::size_t{1} << (random() % 16)) + random() % 2;
        live.push_back(allocate(bytes, streams[t], static_cast<unsigned char>(random())));
      } else if (!live.empty() && choice < 9) {
        free_one(random() % live.size());
      } else if (!live.empty()) {
        const std::lock_guard lock(mutex);
        mailbox.push_back(live.back());
        live.back() = mailbox[random() % mailbox.size()];
        std::erase_if(mailbox, [&](const Block& block) { return block.data == live.back().data; });
      }
    }
    while (!live.empty()) free_one(live.size() - 1);
  };
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      try {
        use(t);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0) << "seed " << seed.seed();
  for (const Block& block : mailbox) free(block);
}

}  // namespace
}  // namespace burin::test
