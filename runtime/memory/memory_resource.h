#pragma once

#include <burin/runtime/device.h>
#include <burin/runtime/export.h>
#include <burin/runtime/stream.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace burin {

/// Where memory can be reached from.
enum class MemoryKind : std::uint8_t { host, pinned, device };

/// A source of memory, ordered by streams. Thread-safe. Resources stack: a pool draws from another resource.
///
/// Contract: memory from allocate(bytes, s) is valid for work queued on s after the call, and for other
/// streams once they have waited for s. deallocate(p, bytes, s) may be called while work that uses p is still
/// queued on s; later allocations on s may reuse p at once, and those on other streams only after the work
/// queued on s by then.
class BURIN_API MemoryResource {
 public:
  static constexpr std::size_t kAlignment = 256;  // bytes; every pointer returned is a multiple of it

  virtual ~MemoryResource() = default;
  /// Throws OutOfMemory. A request of 0 bytes returns nullptr, which deallocate accepts.
  virtual void* allocate(std::size_t bytes, StreamView stream) = 0;
  virtual void deallocate(void* data, std::size_t bytes, StreamView stream) noexcept = 0;
  /// As deallocate, for memory that work queued on `users` uses as well: it is reused only after what is
  /// queued there by now. Unless a resource does better, `stream` waits for them, or, if it is of the CPU,
  /// the caller. Where that cannot be (the device is lost, or a user is being captured), the memory is kept
  /// for ever rather than reused; a CachingPool keeps it until the capture has ended.
  virtual void deallocate_after(void* data, std::size_t bytes, StreamView stream,
                                std::span<const StreamView> users) noexcept;
  virtual Device device() const noexcept = 0;
  virtual MemoryKind kind() const noexcept = 0;
};

/// Pageable host memory from the C++ heap.
BURIN_API std::shared_ptr<MemoryResource> make_cpu_resource();
/// Page-locked host memory that CUDA copies can read and write asynchronously; of device cpu. Every call goes
/// to the driver: make_pinned_pool() is for programs. Throws DeviceError where CUDA cannot be used.
BURIN_API std::shared_ptr<MemoryResource> make_pinned_resource();
/// Device memory by cudaMalloc and cudaFree. Every call goes to the driver and may wait for the device: for
/// pools and tests. Throws DeviceError where the device does not exist.
BURIN_API std::shared_ptr<MemoryResource> make_cuda_resource(int device_index);

}  // namespace burin
