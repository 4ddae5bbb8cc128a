#include <burin/runtime/check.h>
#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/cuda/device_guard.h>
#include <burin/runtime/memory/segment_source.h>

#include <algorithm>

namespace burin::detail {
namespace {

constexpr const char* kOp = "allocate";

CUdeviceptr device_address(char* address) { return reinterpret_cast<CUdeviceptr>(address); }

class VirtualMemorySource final : public SegmentSource {
 public:
  VirtualMemorySource(int device, std::size_t granule, std::size_t device_bytes)
      : device_(device), granule_(granule), device_bytes_(device_bytes) {}

  Device device() const noexcept override { return Device::cuda(device_); }
  MemoryKind kind() const noexcept override { return MemoryKind::device; }
  std::size_t granule() const noexcept override { return granule_; }
  std::size_t largest_mapping() const noexcept override { return std::max(granule_, std::size_t{8} << 20); }
  // Addresses for all the device has: a segment never needs to move.
  std::size_t segment_bytes(std::size_t bytes) const noexcept override {
    return std::max(bytes, (device_bytes_ + granule_ - 1) / granule_ * granule_);
  }

  char* reserve(std::size_t bytes) override {
    CUdeviceptr address = 0;
    BURIN_CUDA(kOp, cuMemAddressReserve, &address, bytes, granule_, 0, 0);
    return reinterpret_cast<char*>(address);
  }
  void release(char* address, std::size_t bytes) noexcept override {
    cuda::ignore(cuda::api().cuMemAddressFree(device_address(address), bytes));
  }

  std::uint64_t map(char* address, std::size_t bytes) override {
    const cuda::DeviceGuard guard(device_, kOp);
    const CUmemAllocationProp properties = allocation_properties(device_);
    CUmemGenericAllocationHandle handle = 0;
    BURIN_CUDA(kOp, cuMemCreate, &handle, bytes, &properties, 0);
    const cuda::CudaApi& api = cuda::api();
    if (const cudaError_t code = api.cuMemMap(device_address(address), bytes, 0, handle, 0);
        code != cudaSuccess) {
      cuda::ignore(api.cuMemRelease(handle));
      cuda::check(code, "cuMemMap", kOp);
    }
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (const cudaError_t code = api.cuMemSetAccess(device_address(address), bytes, &access, 1);
        code != cudaSuccess) {
      unmap(address, bytes, handle);
      cuda::check(code, "cuMemSetAccess", kOp);
    }
    return handle;
  }
  void unmap(char* address, std::size_t bytes, std::uint64_t mapping) noexcept override {
    cuda::ignore(cuda::api().cuMemUnmap(device_address(address), bytes));
    cuda::ignore(cuda::api().cuMemRelease(mapping));
  }

  static CUmemAllocationProp allocation_properties(int device) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    return properties;
  }

 private:
  int device_;
  std::size_t granule_;
  std::size_t device_bytes_;
};

}  // namespace

std::unique_ptr<SegmentSource> make_virtual_memory_source(int device_index) {
  constexpr const char* kMake = "caching_pool";
  const cuda::DeviceGuard guard(device_index, kMake);
  std::size_t free = 0;
  std::size_t total = 0;
  BURIN_CUDA(kMake, cudaMemGetInfo, &free, &total);
  const CUmemAllocationProp properties = VirtualMemorySource::allocation_properties(device_index);
  std::size_t granule = 0;
  const cudaError_t code = cuda::usable_api(kMake).cuMemGetAllocationGranularity(
      &granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (code == cudaErrorNotSupported) return nullptr;
  cuda::check(code, "cuMemGetAllocationGranularity", kMake);
  // Some systems know the calls and yet have no virtual memory: trying costs some 30 us.
  CUmemGenericAllocationHandle handle = 0;
  const cudaError_t created = cuda::usable_api(kMake).cuMemCreate(&handle, granule, &properties, 0);
  if (created == cudaErrorNotSupported) return nullptr;
  if (created == cudaSuccess)
    cuda::ignore(cuda::api().cuMemRelease(handle));
  else
    cuda::ignore(created);  // out of memory: growing will say so
  return std::make_unique<VirtualMemorySource>(device_index, granule, total);
}

}  // namespace burin::detail
