#pragma once
// What every test shares: the targets to run on, poisoned and failing memory, seeded random data, comparison.

#include <burin/runtime/backend.h>
#include <burin/runtime/check.h>
#include <burin/runtime/context.h>
#include <burin/runtime/convert.h>
#include <burin/runtime/copy.h>
#include <burin/runtime/dispatch.h>
#include <burin/runtime/memory/adaptors.h>
#include <burin/runtime/memory/debug_resource.h>
#include <burin/runtime/tensor.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <random>
#include <source_location>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace burin::test {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

/// The path of a file in tests/data.
inline std::string test_data(const std::string& name) { return std::string(BURIN_TEST_DATA) + "/" + name; }

/// A backend to run a test body on, and the element type to run it in.
struct Target {
  Backend backend = Backend::cpu;
  DType dtype = DType::f32;
  Device device() const { return backend == Backend::cpu ? Device::cpu() : Device::cuda(0); }
};
std::ostream& operator<<(std::ostream& out, const Target& target);
/// "cuda_f16", for INSTANTIATE_TEST_SUITE_P.
std::string target_name(const ::testing::TestParamInfo<Target>& info);
/// Every combination.
std::vector<Target> targets(std::initializer_list<Backend> backends, std::initializer_list<DType> dtypes);

/// Why a target cannot run here; empty if it can.
std::string unavailable(const Target& target);

/// A test body that runs on each target. The context's memory is poisoned, so that an element nobody wrote is
/// NaN (or 0xFF), and the target's backend is forced. A target that cannot run here is skipped, visibly.
class OnEachTarget : public ::testing::TestWithParam<Target> {
 protected:
  void SetUp() override;
  void TearDown() override;
  Context& ctx() { return *ctx_; }
  DType dtype() const { return GetParam().dtype; }
  Backend backend() const { return GetParam().backend; }
  /// A tensor of the target's dtype and device with these values (converted).
  Tensor tensor(const Shape& shape, const std::vector<double>& values);
  /// The elements in row-major order, in double.
  std::vector<double> values(const Tensor& x) { return values_of(*ctx_, x); }
  static std::vector<double> values_of(Context& ctx, const Tensor& x);

 private:
  std::shared_ptr<DebugResource> memory_;
  std::unique_ptr<Context> ctx_;
};

/// Poisons what it hands out and what it is given back. Host memory has red zones too, which OnEachTarget
/// looks at after each test; not with AddressSanitizer, which sees more without them, nor on a GPU, where
/// each release would wait.
std::shared_ptr<DebugResource> make_poisoned(std::shared_ptr<MemoryResource> upstream);
/// The default resource of a device.
std::shared_ptr<MemoryResource> make_resource(Device device);

/// Runs `body` on a fresh context of the device whose allocation 1, 2, 3, ... fails, until none is hit: each
/// failure must be an OutOfMemory, leave no block behind, and the next undisturbed run must succeed.
void expect_clean_allocation_failures(Device device, const std::function<void(Context&)>& body);

/// Seeded data and shapes. The seed is printed when a test fails; BURIN_TEST_SEED replays it.
class Random {
 public:
  explicit Random(std::uint64_t salt = 0);
  std::int64_t integer(std::int64_t low, std::int64_t high) {  // inclusive
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  double real(double low, double high) { return std::uniform_real_distribution<double>(low, high)(engine_); }
  bool chance(double p) { return real(0, 1) < p; }
  std::vector<double> reals(std::int64_t count, double low = -1, double high = 1);
  std::vector<double> integers(std::int64_t count, std::int64_t low, std::int64_t high);
  template <class T, std::size_t kCount>
  const T& choice(const T (&of)[kCount]) {
    return of[integer(0, static_cast<std::int64_t>(kCount) - 1)];
  }
  std::uint64_t seed() const { return seed_; }

 private:
  std::uint64_t seed_;
  std::mt19937_64 engine_;
};

/// How many cases a random sweep runs: `usual`, or BURIN_TEST_SWEEP if that is set (for slow tools).
int sweep(int usual);

/// The same values under other strides: dense, channels-last (rank 4), a slice of a larger tensor with a
/// step, reversed axis order in memory.
enum class Variant { contiguous, channels_last, sliced, permuted };
inline constexpr Variant kVariants[] = {Variant::contiguous, Variant::channels_last, Variant::sliced,
                                        Variant::permuted};
Tensor with_strides(Context& ctx, const Tensor& x, Variant variant);

/// The value after rounding to dtype and back.
double rounded(double value, DType dtype);
/// Unit of the last place at 1: 2^-24 for f32 (half an ulp), 2^-11 for f16, 2^-8 for bf16.
double epsilon(DType dtype);

/// Each |actual - expected| <= tolerance(i); NaN equals NaN, infinities equal themselves. Reports the first
/// few misses.
void expect_near(const std::vector<double>& actual, const std::vector<double>& expected,
                 const std::function<double(std::size_t)>& tolerance);
void expect_equal(const std::vector<double>& actual, const std::vector<double>& expected);

/// The call must throw an Exception whose message holds `piece`.
template <class Exception, class Call>
void expect_error(Call&& call, const std::string& piece,
                  std::source_location where = std::source_location::current()) {
  const ::testing::ScopedTrace trace(where.file_name(), static_cast<int>(where.line()), "expect_error");
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; expected: " << piece;
  } catch (const Exception& error) {
    EXPECT_NE(std::string(error.what()).find(piece), std::string::npos)
        << error.what() << "\nlacks: " << piece;
  }
}

/// The tolerance of a sum of `terms` products: 4 sqrt(K) eps sum|a b| in the accumulator's f32, plus the
/// rounding of the result to dtype.
double sum_tolerance(DType dtype, std::int64_t terms, double sum_of_magnitudes, double result);

}  // namespace burin::test
