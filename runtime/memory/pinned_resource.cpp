#include <burin/runtime/check.h>
#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/memory/memory_resource.h>

namespace burin {
namespace {

class PinnedResource final : public MemoryResource {
 public:
  void* allocate(std::size_t bytes, StreamView) override {
    if (bytes == 0) return nullptr;
    const cuda::BesideCapture beside;
    void* data = nullptr;
    const cudaError_t code = cuda::usable_api("allocate").cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
    if (code == cudaErrorMemoryAllocation) {
      cuda::ignore(code);
      throw OutOfMemory(fmt::format("{} bytes of page-locked host memory could not be allocated", bytes),
                        {.requested = bytes});
    }
    cuda::check(code, "cudaHostAlloc", "allocate");
    return data;
  }
  void deallocate(void* data, std::size_t, StreamView) noexcept override {
    if (!data) return;
    const cuda::BesideCapture beside;
    cuda::ignore(cuda::api().cudaFreeHost(data));
  }
  Device device() const noexcept override { return Device::cpu(); }
  MemoryKind kind() const noexcept override { return MemoryKind::pinned; }
};

}  // namespace

std::shared_ptr<MemoryResource> make_pinned_resource() {
  const CudaAvailability cuda = cuda::availability();
  BURIN_CHECK(cuda.count > 0, DeviceError, "pinned_resource: CUDA cannot be used: {}", cuda.reason);
  return std::make_shared<PinnedResource>();
}

}  // namespace burin
