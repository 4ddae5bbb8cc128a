#include <burin/runtime/check.h>
#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/cuda/device_guard.h>
#include <burin/runtime/cuda/unique_handle.h>
#include <burin/runtime/memory/memory_resource.h>

namespace burin {
namespace {

struct DestroyPool {
  void operator()(cudaMemPool_t pool) const noexcept { cuda::ignore(cuda::api().cudaMemPoolDestroy(pool)); }
};
using Pool = UniqueHandle<cudaMemPool_t, DestroyPool>;

Pool make_pool(int device) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {.type = cudaMemLocationTypeDevice, .id = device};
  cudaMemPool_t raw = nullptr;
  BURIN_CUDA("cuda_resource", cudaMemPoolCreate, &raw, &properties);
  Pool pool(raw);
  std::uint64_t keep_all = UINT64_MAX;
  BURIN_CUDA("cuda_resource", cudaMemPoolSetAttribute, raw, cudaMemPoolAttrReleaseThreshold, &keep_all);
  return pool;
}

class CudaResource final : public MemoryResource {
 public:
  explicit CudaResource(int device) : device_(device), pool_(make_pool(device)) {}

  void* allocate(std::size_t bytes, StreamView stream) override {
    if (bytes == 0) return nullptr;
    const cuda::DeviceGuard guard(device_, "allocate");
    void* data = nullptr;
    const cudaError_t code =
        cuda::usable_api("allocate").cudaMallocFromPoolAsync(&data, bytes, pool_.get(), native(stream));
    if (code == cudaErrorMemoryAllocation) {
      cuda::ignore(code);
      throw_out_of_memory(bytes);
    }
    cuda::check(code, "cudaMallocFromPoolAsync", "allocate");
    return data;
  }

  void deallocate(void* data, std::size_t, StreamView stream) noexcept override {
    if (data) cuda::ignore(cuda::api().cudaFreeAsync(data, native(stream)));
  }

  Device device() const noexcept override { return Device::cuda(device_); }
  MemoryKind kind() const noexcept override { return MemoryKind::device; }

 private:
  static cudaStream_t native(StreamView stream) { return static_cast<cudaStream_t>(stream.native_handle()); }

  std::size_t attribute(cudaMemPoolAttr which) const {
    std::uint64_t value = 0;
    cuda::ignore(cuda::api().cudaMemPoolGetAttribute(pool_.get(), which, &value));
    return value;
  }

  [[noreturn]] void throw_out_of_memory(std::size_t bytes) const {
    OutOfMemory::Figures figures{.requested = bytes,
                                 .allocated = attribute(cudaMemPoolAttrUsedMemCurrent),
                                 .reserved = attribute(cudaMemPoolAttrReservedMemCurrent)};
    cuda::ignore(cuda::api().cudaMemGetInfo(&figures.free, &figures.total));
    throw OutOfMemory(
        fmt::format("{} bytes could not be allocated on cuda:{}: {} are in use and {} reserved here, {} of "
                    "the device's {} are free",
                    bytes, device_, figures.allocated, figures.reserved, figures.free, figures.total),
        figures);
  }

  int device_;
  Pool pool_;
};

}  // namespace

std::shared_ptr<MemoryResource> make_cuda_resource(int device_index) {
  require_device("cuda_resource", Device::cuda(device_index));
  return std::make_shared<CudaResource>(device_index);
}

}  // namespace burin
