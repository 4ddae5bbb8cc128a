#include <burin/runtime/check.h>
#include <burin/runtime/memory/memory_resource.h>

#include <cstddef>
#include <limits>
#include <new>

namespace burin {
namespace {

class CpuResource final : public MemoryResource {
 public:
  void* allocate(std::size_t bytes, StreamView) override {
    if (bytes == 0) return nullptr;
    // operator new rounds up to the alignment, and what then passes 64 bits would come out small.
    constexpr std::size_t kMost = std::numeric_limits<std::ptrdiff_t>::max();
    void* data = bytes > kMost ? nullptr : ::operator new (bytes, std::align_val_t{kAlignment}, std::nothrow);
    if (!data)
      throw OutOfMemory(fmt::format("{} bytes of host memory could not be allocated", bytes),
                        {.requested = bytes});
    return data;
  }
  void deallocate(void* data, std::size_t, StreamView) noexcept override {
    ::operator delete (data, std::align_val_t{kAlignment});
  }
  Device device() const noexcept override { return Device::cpu(); }
  MemoryKind kind() const noexcept override { return MemoryKind::host; }
};

}  // namespace

std::shared_ptr<MemoryResource> make_cpu_resource() { return std::make_shared<CpuResource>(); }

#if !defined(BURIN_WITH_CUDA)
std::shared_ptr<MemoryResource> make_pinned_resource() {
  throw DeviceError(fmt::format("pinned_resource: {}", cuda_availability().reason));
}

std::shared_ptr<MemoryResource> make_cuda_resource(int) {
  throw DeviceError(fmt::format("cuda_resource: {}", cuda_availability().reason));
}
#endif

}  // namespace burin
