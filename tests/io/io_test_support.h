#pragma once
// What the tests of readers share: files in a folder of their own, and hostile variations of a good one.

#include <burin/runtime/error.h>
#include <support/test_support.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace burin::test {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Each test has a folder, which goes with it.
class IoTest : public ::testing::Test {
 protected:
  IoTest() { std::filesystem::create_directories(folder_); }
  ~IoTest() override {
    std::filesystem::remove_all(folder_);
    ::close(memory_file_);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& content, const std::string& name = "file") const {
    std::ofstream(path(name), std::ios::binary | std::ios::trunc) << content;
    return path(name);
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  /// The content under a path that costs no disk; the next call replaces it.
  std::string write_in_memory(const std::string& content) const {
    EXPECT_EQ(::ftruncate(memory_file_, 0), 0);
    EXPECT_EQ(::pwrite(memory_file_, content.data(), content.size(), 0),
              static_cast<ssize_t>(content.size()));
    return "/proc/self/fd/" + std::to_string(memory_file_);
  }

  /// Reading may succeed or throw what derives from Error; anything else fails the test.
  void expect_only_errors(const std::string& content,
                          const std::function<void(const std::string&)>& read) const {
    try {
      read(write_in_memory(content));
    } catch (const Error&) {
    }
  }

  /// Every proper prefix of a good file must be refused.
  void expect_prefixes_refused(const std::string& good,
                               const std::function<void(const std::string&)>& read) const {
    for (std::size_t bytes = 0; bytes < good.size(); ++bytes)
      EXPECT_THROW(read(write_in_memory(good.substr(0, bytes))), FileError)
          << "of the first " << bytes << " bytes";
  }

  /// Good files with one to four bytes changed.
  void flip_bytes(const std::string& good, int rounds,
                  const std::function<void(const std::string&)>& read) const {
    std::mt19937_64 random(20260101);
    for (int round = 0; round < rounds; ++round) {
      std::string bad = good;
      for (std::uint64_t flips = 1 + random() % 4; flips > 0; --flips)
        bad[random() % bad.size()] = static_cast<char>(random());
      ASSERT_NO_FATAL_FAILURE(expect_only_errors(bad, read)) << "round " << round;
    }
  }

 private:
  int memory_file_ = ::memfd_create("burin_test", MFD_CLOEXEC);
  std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) /
      (std::string("burin_") + ::testing::UnitTest::GetInstance()->current_test_info()->test_suite_name() +
       "_" + ::testing::UnitTest::GetInstance()->current_test_info()->name() + "_" +
       std::to_string(std::random_device()()));
};

/// The message of the E that `call` throws; a failure, and empty, if it throws none.
template <class E>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another exception: " << e.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace burin::test
