// Virtual memory of the fake device.

#include <support/fake_cuda.h>
#include <support/test_support.h>

#include <gmock/gmock.h>

namespace burin::test {
namespace {

using cuda::api;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

cudaStream_t make_stream() {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(api().cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
  return stream;
}
cudaError_t fill(void* dst, int value, cudaStream_t stream, std::size_t bytes = 64) {
  return api().cudaMemsetAsync(dst, value, bytes, stream);
}

/// A virtual address range, and memory to map there.
class FakeCudaVirtualMemory : public ::testing::Test {
 protected:
  static constexpr std::size_t kGranule = std::size_t{2} << 20;

  CUmemAllocationProp properties() const {
    CUmemAllocationProp out = {};
    out.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    out.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    return out;
  }
  CUdeviceptr reserve(std::size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(api().cuMemAddressReserve(&address, bytes, 0, 0, 0), cudaSuccess);
    return address;
  }
  CUmemGenericAllocationHandle create(std::size_t bytes = kGranule) {
    const CUmemAllocationProp prop = properties();
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(api().cuMemCreate(&handle, bytes, &prop, 0), cudaSuccess);
    return handle;
  }
  cudaError_t map(CUdeviceptr address, CUmemGenericAllocationHandle handle, std::size_t bytes = kGranule) {
    return api().cuMemMap(address, bytes, 0, handle, 0);
  }
  cudaError_t set_access(CUdeviceptr address, std::size_t bytes) {
    CUmemAccessDesc access = {};
    access.location = properties().location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return api().cuMemSetAccess(address, bytes, &access, 1);
  }
  static std::byte* pointer(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

  FakeCuda fake_{{.total_bytes = 4 * kGranule}};
};

TEST_F(FakeCudaVirtualMemory, GrowsInPlaceAndGivesEverythingBack) {
  cudaStream_t stream = make_stream();
  const CUdeviceptr address = reserve(8 * kGranule);
  const auto first = create();
  const auto second = create(2 * kGranule);
  EXPECT_EQ(map(address, first), cudaSuccess);
  EXPECT_EQ(map(address + kGranule, second, 2 * kGranule), cudaSuccess);
  EXPECT_EQ(set_access(address, 3 * kGranule), cudaSuccess);
  EXPECT_EQ(
      fake_.live(),
      (FakeCuda::Live{
          .streams = 1, .device_bytes = 3 * kGranule, .reserved_address_bytes = 8 * kGranule, .handles = 2}));
  EXPECT_EQ(fill(pointer(address), 9, stream, 3 * kGranule), cudaSuccess);  // across both
  EXPECT_EQ(api().cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(static_cast<int>(pointer(address)[3 * kGranule - 1]), 9);

  EXPECT_EQ(api().cuMemUnmap(address, kGranule), cudaSuccess);
  EXPECT_EQ(map(address + 4 * kGranule, first), cudaSuccess);  // its content moves along
  EXPECT_EQ(set_access(address + 4 * kGranule, kGranule), cudaSuccess);
  EXPECT_EQ(static_cast<int>(pointer(address)[4 * kGranule]), 9);

  EXPECT_EQ(api().cuMemRelease(first), cudaSuccess);
  EXPECT_EQ(api().cuMemRelease(second), cudaSuccess);
  EXPECT_EQ(fake_.live().device_bytes, 3 * kGranule);  // as long as it is mapped
  EXPECT_EQ(api().cuMemUnmap(address + kGranule, 2 * kGranule), cudaSuccess);
  EXPECT_EQ(api().cuMemUnmap(address + 4 * kGranule, kGranule), cudaSuccess);
  EXPECT_EQ(api().cuMemAddressFree(address, 8 * kGranule), cudaSuccess);
  api().cudaStreamDestroy(stream);
  EXPECT_EQ(fake_.live(), FakeCuda::Live{});
  EXPECT_THAT(fake_.violations(), IsEmpty());
}

TEST_F(FakeCudaVirtualMemory, RefusesWhatDoesNotFit) {
  const CUmemAllocationProp prop = properties();
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  EXPECT_EQ(api().cuMemCreate(&handle, kGranule + 1, &prop, 0), cudaErrorInvalidValue);
  EXPECT_EQ(api().cuMemCreate(&handle, 5 * kGranule, &prop, 0), cudaErrorMemoryAllocation);
  EXPECT_EQ(api().cuMemAddressReserve(&address, kGranule + 1, 0, 0, 0), cudaErrorInvalidValue);
  address = reserve(2 * kGranule);
  handle = create();
  EXPECT_EQ(map(address + 4096, handle), cudaErrorInvalidValue);
  EXPECT_EQ(map(address, handle, 2 * kGranule), cudaErrorNotSupported);   // not all of it
  EXPECT_EQ(map(address + 2 * kGranule, handle), cudaErrorInvalidValue);  // outside
  EXPECT_EQ(map(address, handle), cudaSuccess);
  EXPECT_EQ(map(address, handle), cudaErrorInvalidValue);  // taken
  EXPECT_EQ(set_access(address, 2 * kGranule), cudaErrorInvalidValue);
  EXPECT_THAT(fake_.violations(), IsEmpty());
  EXPECT_EQ(fill(pointer(address), 0, make_stream()), cudaErrorInvalidValue);
  EXPECT_THAT(fake_.violations(), Contains(HasSubstr("access is not set")));
  EXPECT_EQ(api().cuMemUnmap(address, 2 * kGranule), cudaErrorInvalidValue);
  EXPECT_THAT(fake_.violations(), Contains(HasSubstr("not whole mappings")));
  EXPECT_EQ(api().cuMemAddressFree(address, 2 * kGranule), cudaErrorInvalidValue);
  EXPECT_THAT(fake_.violations(), Contains(HasSubstr("still mapped")));
}

TEST_F(FakeCudaVirtualMemory, UnmapDoesNotWaitSoPendingWorkOnItIsAViolation) {
  cudaStream_t stream = make_stream();
  const CUdeviceptr address = reserve(kGranule);
  map(address, create());
  set_access(address, kGranule);
  fill(pointer(address), 1, stream);
  EXPECT_EQ(api().cuMemUnmap(address, kGranule), cudaSuccess);
  EXPECT_THAT(fake_.violations(), IsEmpty());
  EXPECT_EQ(api().cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT_THAT(fake_.violations(), Contains(HasSubstr("when it ran")));
  EXPECT_EQ(api().cudaDeviceSynchronize(), cudaErrorIllegalAddress);  // the device is lost
}

TEST_F(FakeCudaVirtualMemory, PendingWorkDoesNotGoToWhatIsMappedLater) {
  cudaStream_t stream = make_stream();
  const CUdeviceptr address = reserve(kGranule);
  map(address, create());
  set_access(address, kGranule);
  fill(pointer(address), 1, stream);
  api().cuMemUnmap(address, kGranule);
  map(address, create());
  set_access(address, kGranule);
  EXPECT_EQ(api().cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT_THAT(fake_.violations(), Contains(HasSubstr("given out again")));
}

TEST(FakeCudaMemory, VirtualMemoryCanBeAbsent) {
  FakeCuda fake({.virtual_memory = false});
  CUdeviceptr address = 0;
  EXPECT_EQ(api().cuMemAddressReserve(&address, std::size_t{2} << 20, 0, 0, 0), cudaErrorNotSupported);
}

}  // namespace
}  // namespace burin::test
