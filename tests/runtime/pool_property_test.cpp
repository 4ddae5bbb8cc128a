// CachingPool against a shadow model: threads allocate, fill, share, hand over and free blocks on streams at
// random. What each block held when it was freed is read by work queued before the free, so memory that was
// handed out too early, twice, or without waiting for another stream shows as a wrong pattern.

#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/event.h>
#include <burin/runtime/memory/caching_pool.h>
#include <support/cuda_fixture.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace burin::test {
namespace {

/// Blocks in use, by address: none may overlap another.
class Shadow {
 public:
  void add(const void* data, std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    const std::lock_guard lock(mutex_);
    const auto after = blocks_.lower_bound(begin);
    if (after != blocks_.end() && after->first < begin + bytes) ++overlaps_;
    if (after != blocks_.begin() && std::prev(after)->second > begin) ++overlaps_;
    blocks_.emplace(begin, begin + bytes);
  }
  void remove(const void* data) {
    const std::lock_guard lock(mutex_);
    blocks_.erase(reinterpret_cast<std::uintptr_t>(data));
  }
  int overlaps() const { return overlaps_; }

 private:
  std::mutex mutex_;
  std::map<std::uintptr_t, std::uintptr_t> blocks_;
  int overlaps_ = 0;
};

struct Live {
  char* data;
  std::size_t bytes;
  std::size_t tag;     // index into the thread's patterns
  std::size_t stream;  // allocated on
  int owner;           // the thread whose patterns it holds
};

/// Page-locked words: what was written to the first and last bytes of each block, and what was read back.
struct Patterns {
  explicit Patterns(std::size_t count_in)
      : memory(make_pinned_resource()),
        stream(Device::cpu()),
        count(count_in),
        words(static_cast<std::uint64_t*>(memory->allocate(bytes(), stream))) {
    std::fill_n(words, 3 * count, 0);
  }
  ~Patterns() { memory->deallocate(words, bytes(), stream); }
  Patterns(const Patterns&) = delete;
  Patterns& operator=(const Patterns&) = delete;
  std::size_t bytes() const { return 3 * count * sizeof(std::uint64_t); }
  std::uint64_t* written(std::size_t tag) { return words + 3 * tag; }
  std::uint64_t* head(std::size_t tag) { return words + 3 * tag + 1; }
  std::uint64_t* tail(std::size_t tag) { return words + 3 * tag + 2; }

  std::shared_ptr<MemoryResource> memory;
  Stream stream;
  std::size_t count;
  std::uint64_t* words;
};

struct Load {
  int threads;
  std::size_t operations;  // of each thread
  std::size_t limit_bytes;
};

class PoolProperty : public OnCuda {
 protected:
  static constexpr std::size_t kStreams = 4;

  void run(const Load& load) {
    CachingPool pool(Device::cuda(), {.limit_bytes = load.limit_bytes});
    {
      std::vector<Stream> streams;
      for (std::size_t i = 0; i < kStreams; ++i) streams.emplace_back(Device::cuda());
      std::vector<std::unique_ptr<Patterns>> patterns;
      for (int i = 0; i < load.threads; ++i) patterns.push_back(std::make_unique<Patterns>(load.operations));
      Shadow shadow;
      std::mutex handed_over_mutex;
      std::deque<Live> handed_over;  // to be freed by whichever thread takes it
      std::atomic<std::size_t> refused{0};

      const auto free_block = [&](const Live& block, Random& random) {
        const StreamView stream = streams[block.stream];
        Patterns& mine = *patterns[static_cast<std::size_t>(block.owner)];
        const std::size_t reader = static_cast<std::size_t>(random.integer(0, kStreams - 1));
        const bool shared = reader != block.stream && random.chance(0.2);
        const StreamView reads = shared ? streams[reader].view() : stream;
        if (shared) {
          Event written(Device::cuda(), {.timing = false});
          written.record(stream);
          reads.wait(written);
        }
        cuda::copy_bytes(reads, mine.head(block.tag), block.data, 8);
        cuda::copy_bytes(reads, mine.tail(block.tag), block.data + block.bytes - 8, 8);
        shadow.remove(block.data);
        if (shared)
          pool.deallocate_after(block.data, block.bytes, stream, std::array{reads});
        else
          pool.deallocate(block.data, block.bytes, stream);
      };

      const auto work = [&](int thread) {
        Random random(static_cast<std::uint64_t>(thread));
        Patterns& mine = *patterns[static_cast<std::size_t>(thread)];
        std::vector<Live> live;
        for (std::size_t tag = 0; tag < load.operations; ++tag) {
          // Few sizes often, so that lists are hit; any size now and then.
          constexpr std::size_t kUsual[] = {256, 4096, 100000, 1 << 20, 3 << 20};
          const std::size_t bytes = random.chance(0.8)
                                        ? random.choice(kUsual)
                                        : static_cast<std::size_t>(std::exp2(random.real(4, 23)));
          const auto stream = static_cast<std::size_t>(random.integer(0, kStreams - 1));
          try {
            auto* data = static_cast<char*>(pool.allocate(bytes, streams[stream]));
            shadow.add(data, bytes);
            *mine.written(tag) = (tag << 8 | static_cast<std::uint64_t>(thread)) + 1;
            cuda::copy_bytes(streams[stream], data, mine.written(tag), 8);
            cuda::copy_bytes(streams[stream], data + bytes - 8, mine.written(tag), 8);
            live.push_back({data, bytes, tag, stream, thread});
          } catch (const OutOfMemory&) {
            ++refused;
          }
          while (live.size() > 24 || (!live.empty() && random.chance(0.45))) {
            const auto which =
                static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(live.size()) - 1));
            std::swap(live[which], live.back());
            const Live block = live.back();
            live.pop_back();
            if (random.chance(0.9)) {
              free_block(block, random);
              continue;
            }
            std::unique_lock lock(handed_over_mutex);
            handed_over.push_back(block);
            const Live other = handed_over.front();
            handed_over.pop_front();
            lock.unlock();
            free_block(other, random);
          }
        }
        for (const Live& block : live) free_block(block, random);
      };

      std::vector<std::thread> threads;
      for (int i = 0; i < load.threads; ++i) threads.emplace_back(work, i);
      for (std::thread& thread : threads) thread.join();
      for (const Stream& stream : streams) stream.synchronize();

      EXPECT_EQ(shadow.overlaps(), 0);
      std::size_t wrong = 0;
      for (const auto& pattern : patterns)
        for (std::size_t tag = 0; tag < load.operations; ++tag)
          if (*pattern->written(tag) != 0 && (*pattern->head(tag) != *pattern->written(tag) ||
                                              *pattern->tail(tag) != *pattern->written(tag)))
            ++wrong;
      EXPECT_EQ(wrong, 0u) << "blocks were overwritten while in use";
      EXPECT_LT(refused, load.operations / 10);

      const PoolStats stats = pool.stats();
      EXPECT_EQ(stats.allocated_bytes.current, 0u);
      EXPECT_EQ(stats.requested_bytes, 0u);
      EXPECT_EQ(stats.blocks.current, 0u);
      EXPECT_EQ(stats.invalid_frees, 0u);
      EXPECT_EQ(stats.blocks.total, static_cast<std::size_t>(load.threads) * load.operations - refused);
      EXPECT_LE(stats.reserved_bytes.peak, load.limit_bytes);
      EXPECT_GT(stats.hits, load.operations / 10);
    }
    pool.trim();
    EXPECT_EQ(pool.stats().reserved_bytes.current, 0u);
  }

  std::size_t operations(std::size_t fake_count, std::size_t real_count) {
    return static_cast<std::size_t>(sweep(static_cast<int>(fake() ? fake_count : real_count)));
  }
};

TEST_F(PoolProperty, K5_EightThreadsOnFourStreams) {
  run({.threads = 8, .operations = operations(200'000, 20'000), .limit_bytes = std::size_t{1} << 30});
}

TEST_F(PoolProperty, AtTheLimitStreamsTakeOverFromEachOther) {
  run({.threads = 4, .operations = operations(20'000, 5'000), .limit_bytes = std::size_t{96} << 20});
}

}  // namespace
}  // namespace burin::test
