#include <burin/runtime/check.h>
#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/cuda/device_guard.h>
#include <burin/runtime/memory/memory_resource.h>

namespace burin {
namespace {

class CudaResource final : public MemoryResource {
 public:
  explicit CudaResource(int device) : device_(device) {}

  void* allocate(std::size_t bytes, StreamView) override {
    if (bytes == 0) return nullptr;
    const cuda::DeviceGuard guard(device_, "allocate");
    const cuda::BesideCapture beside;
    void* data = nullptr;
    const cudaError_t code = cuda::usable_api("allocate").cudaMalloc(&data, bytes);
    if (code == cudaErrorMemoryAllocation) {
      cuda::ignore(code);
      OutOfMemory::Figures figures{.requested = bytes};
      cuda::ignore(cuda::api().cudaMemGetInfo(&figures.free, &figures.total));
      throw OutOfMemory(fmt::format("{} bytes could not be allocated on cuda:{}: {} of its {} are free",
                                    bytes, device_, figures.free, figures.total),
                        figures);
    }
    cuda::check(code, "cudaMalloc", "allocate");
    return data;
  }

  // cudaFree waits for the work that may use the memory.
  void deallocate(void* data, std::size_t, StreamView) noexcept override {
    if (!data) return;
    const cuda::BesideCapture beside;
    cuda::ignore(cuda::api().cudaFree(data));
  }

  Device device() const noexcept override { return Device::cuda(device_); }
  MemoryKind kind() const noexcept override { return MemoryKind::device; }

 private:
  int device_;
};

}  // namespace

std::shared_ptr<MemoryResource> make_cuda_resource(int device_index) {
  require_device("cuda_resource", Device::cuda(device_index));
  return std::make_shared<CudaResource>(device_index);
}

}  // namespace burin
