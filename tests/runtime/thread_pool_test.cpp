#include <burin/runtime/cpu/thread_pool.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace burin {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {
 protected:
  ThreadPool pool_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

TEST_P(ThreadPoolTest, RunsEachTaskOnce) {
  EXPECT_EQ(pool_.size(), GetParam());
  for (const int tasks : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
    pool_.for_each(tasks, [&](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; });
    for (const auto& count : runs) EXPECT_EQ(count, 1);
  }
}

TEST_P(ThreadPoolTest, ManyShortLoopsAndSleepsBetween) {
  std::atomic<std::int64_t> sum{0};
  for (int loop = 0; loop < 3000; ++loop) {
    pool_.for_each(3, [&](std::int64_t i) { sum += i; });
    if (loop % 500 == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the workers fall asleep
  }
  EXPECT_EQ(sum, 3 * 3000);
}

TEST_P(ThreadPoolTest, RangesCoverAllWithTheGrain) {
  for (const std::int64_t count : {0, 1, 9, 10, 11, 100, 1001}) {
    std::mutex mutex;
    std::set<std::pair<std::int64_t, std::int64_t>> ranges;
    pool_.for_ranges(count, 10, [&](std::int64_t begin, std::int64_t end) {
      const std::lock_guard lock(mutex);
      ranges.emplace(begin, end);
    });
    std::int64_t at = 0;
    for (const auto& [begin, end] : ranges) {
      EXPECT_EQ(begin, at);
      EXPECT_LT(begin, end);
      at = end;
    }
    EXPECT_EQ(at, count);
    EXPECT_LE(std::ssize(ranges), std::min<std::int64_t>(GetParam(), (count + 9) / 10));
  }
}

TEST_P(ThreadPoolTest, RethrowsOneExceptionAfterTheRestHaveFinished) {
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> inside{0};
    try {
      pool_.for_each(50, [&](std::int64_t i) {
        ++inside;
        if (i % 3 == 0) {
          --inside;
          throw std::runtime_error("task");
        }
        --inside;
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "task");
    }
    EXPECT_EQ(inside, 0);
  }
  std::atomic<int> runs{0};
  pool_.for_each(10, [&](std::int64_t) { ++runs; });
  EXPECT_EQ(runs, 10) << "the pool still works";
}

TEST_P(ThreadPoolTest, LoopsInsideTasksRunOnTheTasksThread) {
  std::atomic<int> runs{0};
  std::atomic<int> strangers{0};
  pool_.for_each(8, [&](std::int64_t) {
    const std::thread::id here = std::this_thread::get_id();
    pool_.for_each(5, [&](std::int64_t) {
      ++runs;
      if (std::this_thread::get_id() != here) ++strangers;
    });
  });
  EXPECT_EQ(runs, 40);
  EXPECT_EQ(strangers, 0);
  EXPECT_THROW(pool_.for_each(8,
                              [&](std::int64_t) {
                                pool_.for_each(5, [](std::int64_t i) {
                                  if (i == 4) throw std::logic_error("inner");
                                });
                              }),
               std::logic_error);
}

TEST_P(ThreadPoolTest, AnotherPoolInsideATask) {
  ThreadPool other(2);
  std::atomic<int> runs{0};
  pool_.for_each(6, [&](std::int64_t) { other.for_each(4, [&](std::int64_t) { ++runs; }); });
  EXPECT_EQ(runs, 24);
}

TEST_P(ThreadPoolTest, ALoopInsideAnotherPoolsTaskInsideATask) {
  ThreadPool other(2);
  std::atomic<int> runs{0};
  pool_.for_each(2, [&](std::int64_t task) {
    if (task != 0) return;
    other.for_each(2, [&](std::int64_t) { pool_.for_each(3, [&](std::int64_t) { ++runs; }); });
  });
  EXPECT_GT(runs, 0);
}

TEST_P(ThreadPoolTest, CallersTakeTurns) {
  std::atomic<int> runs{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int loop = 0; loop < 200; ++loop) pool_.for_each(5, [&](std::int64_t) { ++runs; });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(runs, 4 * 200 * 5);
}

TEST(ThreadPool, SizeIsTheCoresOfThisProcessByDefault) {
  EXPECT_GE(ThreadPool().size(), 1);
  for (int i = 0; i < 20; ++i) ThreadPool unused(4);  // joins without ever having worked
}

}  // namespace
}  // namespace burin
