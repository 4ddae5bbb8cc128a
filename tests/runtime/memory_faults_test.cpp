// Every call of CUDA that a program makes fails once: a typed error, nothing left behind, and the next run is
// right. On the fake device, whether there is a GPU or not.

#include <burin/runtime/copy.h>
#include <burin/runtime/event.h>
#include <burin/runtime/memory/caching_pool.h>
#include <support/fake_cuda.h>
#include <support/test_support.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace burin::test {
namespace {

struct Fault {
  std::string name;
  cudaError_t code = cudaSuccess;
  bool and_all_later = false;
};

std::ostream& operator<<(std::ostream& out, const Fault& fault) { return out << fault.name; }

class MemoryFaults : public ::testing::TestWithParam<Fault> {};

INSTANTIATE_TEST_SUITE_P(All, MemoryFaults,
                         ::testing::Values(Fault{"no_memory", cudaErrorMemoryAllocation},
                                           Fault{"refused", cudaErrorInvalidValue},
                                           Fault{"lost", cudaErrorIllegalAddress},
                                           Fault{"no_memory_from_then_on", cudaErrorMemoryAllocation, true},
                                           Fault{"refused_from_then_on", cudaErrorInvalidValue, true},
                                           Fault{"lost_from_then_on", cudaErrorIllegalAddress, true}),
                         [](const ::testing::TestParamInfo<Fault>& param) { return param.param.name; });

constexpr std::int64_t kCount = 1000;

/// Loads, allocates, copies over two streams, frees and destroys, and so owns all that it uses. Returns what
/// came back from the device.
std::vector<float> run_program() {
  const Device device = Device::cuda(0);
  const auto memory = std::make_shared<CachingPool>(device);
  const Stream side(device);
  const auto make_context = [&](Stream stream) {
    ContextOptions options;
    options.memory = memory;
    options.stream = std::move(stream);
    return Context(device, std::move(options));
  };
  Context main = make_context(Stream(device));
  Context other = make_context(Stream::wrap(device, side.view().native_handle()));

  const Tensor loaded = from_host(main, std::vector<float>(kCount, 1), {kCount});
  Tensor upload = empty_pinned(main, {kCount});
  std::fill_n(upload.data<float>(), kCount, 2.0f);
  Tensor joined = empty(main, {2, kCount});
  Tensor first = joined.slice(0, 0, 1).reshape({kCount});
  Tensor second = joined.slice(0, 1, 2).reshape({kCount});
  copy(main, first, loaded);
  copy_async(main, second, upload);
  upload = Tensor();  // the copy keeps it

  Event filled(device);
  filled.record(main.stream());
  other.stream().wait(filled);
  joined.record_use(other.stream());
  Tensor moved = clone(other, joined);
  joined = first = second = Tensor();  // while the other stream reads it
  Tensor result = empty_pinned(other, {2, kCount});
  copy_async(other, result, moved);
  Event read(device);
  read.record(other.stream());
  main.stream().wait(read);
  moved = Tensor();
  main.synchronize();
  EXPECT_TRUE(read.is_done());
  return std::vector<float>(result.data<float>(), result.data<float>() + 2 * kCount);
}

std::vector<float> expected() {
  std::vector<float> values(2 * kCount, 1);
  std::fill(values.begin() + kCount, values.end(), 2.0f);
  return values;
}

/// `may_keep`: no wait succeeds any more, so what a copy may still use is kept for ever.
void expect_nothing_left(const FakeCuda& fake, bool may_keep) {
  const FakeCuda::Live live = fake.live();
  if (!may_keep) {
    EXPECT_EQ(live.device_bytes, 0u);
    EXPECT_EQ(live.pinned_bytes, 0u);
    EXPECT_EQ(live.reserved_address_bytes, 0u);
    EXPECT_EQ(live.handles, 0u);
  }
  EXPECT_EQ(live.streams, 0u);
  EXPECT_EQ(live.events, 0u);
  EXPECT_EQ(live.graphs, 0u);
  EXPECT_EQ(fake.violations(), std::vector<std::string>());
}

TEST_P(MemoryFaults, EveryCallMayFail) {
  const bool lost = GetParam().code == cudaErrorIllegalAddress;
  const bool may_keep = lost || GetParam().and_all_later;
#if defined(__SANITIZE_ADDRESS__)
  std::optional<__lsan::ScopedDisabler> kept;
  if (may_keep) kept.emplace();
#endif
  bool hit = true;
  std::uint64_t n = 0;
  while (hit) {
    ++n;
    ASSERT_LT(n, 2000u) << "the program never stops calling CUDA";
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, "call " + std::to_string(n));
    FakeCuda fake;
    fake.fail_call(n, GetParam().code, GetParam().and_all_later);
    try {
      EXPECT_EQ(run_program(), expected());  // a release that failed
    } catch (const OutOfMemory&) {
    } catch (const CudaError&) {
    } catch (const DeviceError&) {
    } catch (const std::exception& error) {
      ADD_FAILURE() << "not a typed error: " << error.what();
    }
    hit = fake.has_failed();
    expect_nothing_left(fake, may_keep);
    if (HasFailure()) return;
    if (lost) continue;  // nothing runs in such a process any more
    fake.fail_call(0, cudaSuccess);
    EXPECT_EQ(run_program(), expected());
    expect_nothing_left(fake, may_keep);
  }
  EXPECT_GT(n, 50u);
}

}  // namespace
}  // namespace burin::test
