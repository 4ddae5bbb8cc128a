// CachingPool on the CPU: size classes, reuse, limits, figures. pool_cases_test.cpp has what needs a device.

#include <burin/runtime/memory/caching_pool.h>
#include <burin/runtime/memory/size_class.h>
#include <support/test_support.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace burin::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(SizeClass, EveryRequestFitsItsClassAndNoSmallerOne) {
  using namespace detail;
  Random random;
  for (unsigned index = 1; index < kClassCount; ++index) {
    const std::size_t bytes = class_bytes(index);
    ASSERT_GT(bytes, class_bytes(index - 1));
    ASSERT_EQ(class_of_request(bytes), index) << bytes;
    ASSERT_EQ(class_of_request(class_bytes(index - 1) + 1), index) << bytes;
    ASSERT_EQ(class_of_block(bytes), index) << bytes;
    ASSERT_EQ(class_of_block(bytes + kUnitBytes),
              bytes + kUnitBytes < class_bytes(std::min(index + 1, kClassCount - 1))
                  ? index
                  : std::min(index + 1, kClassCount - 1));
  }
  for (int i = 0; i < 100000; ++i) {
    const auto bytes = static_cast<std::size_t>(std::exp2(random.real(14, 44)));
    ASSERT_LE(static_cast<double>(class_bytes(class_of_request(bytes))), static_cast<double>(bytes) * 1.032);
  }
}

class CpuPool : public ::testing::Test {
 protected:
  CachingPool pool_{Device::cpu()};
  Stream stream_{Device::cpu()};
};

TEST_F(CpuPool, ReusesTheLastFreedBlockOfTheClass) {
  void* a = pool_.allocate(1000, stream_);
  void* b = pool_.allocate(1000, stream_);
  EXPECT_NE(a, b);
  pool_.deallocate(a, 1000, stream_);
  pool_.deallocate(b, 1000, stream_);
  EXPECT_EQ(pool_.allocate(1024, stream_), b);  // the same class
  EXPECT_EQ(pool_.allocate(769, stream_), a);
  EXPECT_EQ(pool_.stats().hits, 2u);
  pool_.deallocate(a, 0, stream_);
  pool_.deallocate(b, 0, stream_);
}

TEST_F(CpuPool, NeighboursMergeAndServeALargerRequest) {
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(pool_.allocate(2 * kMiB, stream_));
  for (void* block : blocks) pool_.deallocate(block, 2 * kMiB, stream_);
  const std::size_t reserved = pool_.stats().reserved_bytes.current;
  void* large = pool_.allocate(2 * kMiB, stream_);
  EXPECT_EQ(pool_.stats().reserved_bytes.current, reserved);
  pool_.deallocate(large, 0, stream_);
}

TEST_F(CpuPool, K12_AlternatingSizesStayBounded) {
  const std::size_t bytes = 40 * kMiB;
  for (int i = 0; i < 100000; ++i) {
    void* a = pool_.allocate(bytes, stream_);
    pool_.deallocate(a, bytes, stream_);
    void* b = pool_.allocate(bytes / 2 + 1, stream_);
    pool_.deallocate(b, bytes / 2 + 1, stream_);
  }
  EXPECT_LE(pool_.stats().reserved_bytes.peak, bytes + 2 * kMiB);
}

TEST_F(CpuPool, PointersOfOthersAreLeftAlone) {
  int mine = 0;
  pool_.deallocate(&mine, 4, stream_);
  std::vector<void*> blocks;
  for (int i = 0; i < 500; ++i) blocks.push_back(pool_.allocate(256, stream_));
  for (std::size_t i = 0; i < blocks.size(); i += 2) pool_.deallocate(blocks[i], 256, stream_);
  pool_.stats();  // merges them: their addresses are known no more
  for (const std::uintptr_t address : {1, 256})
    pool_.deallocate(reinterpret_cast<void*>(address), 4, stream_);
  for (std::size_t i = 1; i < blocks.size(); i += 2) pool_.deallocate(blocks[i], 256, stream_);
  EXPECT_EQ(pool_.stats().invalid_frees, 3u);
  void* block = pool_.allocate(100, stream_);
  pool_.deallocate(block, 100, stream_);
  pool_.deallocate(block, 100, stream_);
  EXPECT_EQ(pool_.stats().invalid_frees, 4u);
  EXPECT_EQ(pool_.stats().allocated_bytes.current, 0u);
}

TEST_F(CpuPool, TrimGivesBackWhatIsFree) {
  void* kept = pool_.allocate(3 * kMiB, stream_);
  void* given = pool_.allocate(5 * kMiB, stream_);
  pool_.deallocate(given, 0, stream_);
  EXPECT_EQ(pool_.trim(), 6 * kMiB);
  EXPECT_EQ(pool_.stats().reserved_bytes.current, 4 * kMiB);
  pool_.deallocate(kept, 0, stream_);
  EXPECT_EQ(pool_.trim(), 4 * kMiB);
  EXPECT_TRUE(pool_.snapshot().segments.empty());
}

TEST_F(CpuPool, TheLimitHolds) {
  pool_.set_limit_bytes(8 * kMiB);
  void* a = pool_.allocate(6 * kMiB, stream_);
  try {
    pool_.allocate(3 * kMiB, stream_);
    FAIL() << "beyond the limit";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.figures().requested, 3 * kMiB);
    EXPECT_EQ(error.figures().allocated, 6 * kMiB);
    EXPECT_EQ(error.figures().reserved, 6 * kMiB);
    EXPECT_NE(std::string(error.what()).find("its limit is 8388608"), std::string::npos) << error.what();
  }
  pool_.deallocate(a, 0, stream_);
  void* b = pool_.allocate(8 * kMiB, stream_);  // after giving a's segment back
  EXPECT_EQ(pool_.stats().reserved_bytes.current, 8 * kMiB);
  pool_.deallocate(b, 0, stream_);
}

TEST_F(CpuPool, StatsAndSnapshotAgree) {
  std::vector<void*> blocks;
  for (std::size_t bytes : {std::size_t{1}, std::size_t{256}, std::size_t{257}, 3 * kMiB})
    blocks.push_back(pool_.allocate(bytes, stream_));
  const PoolStats stats = pool_.stats();
  EXPECT_EQ(stats.blocks.current, 4u);
  EXPECT_EQ(stats.requested_bytes, 1 + 256 + 257 + 3 * kMiB);
  EXPECT_EQ(stats.allocated_bytes.current, 256 + 256 + 512 + 3 * kMiB);
  ASSERT_EQ(stats.size_classes.size(), 3u);
  EXPECT_EQ(stats.size_classes[0].largest_bytes, 256u);
  EXPECT_EQ(stats.size_classes[0].live, 2u);
  std::size_t live = 0;
  std::size_t all = 0;
  for (const auto& segment : pool_.snapshot().segments) {
    std::uintptr_t next = segment.address;
    for (const auto& block : segment.blocks) {
      EXPECT_EQ(block.address, next);
      next += block.bytes;
      all += block.bytes;
      if (block.state == PoolSnapshot::State::live) live += block.bytes;
    }
    EXPECT_EQ(next, segment.address + segment.bytes);
  }
  EXPECT_EQ(live, stats.allocated_bytes.current);
  EXPECT_EQ(all, stats.reserved_bytes.current);
  for (void* block : blocks) pool_.deallocate(block, 0, stream_);
  EXPECT_EQ(pool_.stats().blocks.peak, 4u);
}

}  // namespace
}  // namespace burin::test
