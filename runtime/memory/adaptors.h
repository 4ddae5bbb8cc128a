#pragma once

#include <burin/runtime/export.h>
#include <burin/runtime/memory/memory_resource.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>

namespace burin {

/// A resource that passes requests on to another one, its upstream, of whose device and kind it is. The ones
/// below add one thing each and stack in any order. All throw Error if the upstream is null, are thread-safe,
/// and neither count, fail nor delay a request of 0 bytes.
class BURIN_API ResourceAdaptor : public MemoryResource {
 public:
  void deallocate(void* data, std::size_t bytes, StreamView stream) noexcept override;
  void deallocate_after(void* data, std::size_t bytes, StreamView stream,
                        std::span<const StreamView> users) noexcept override;
  Device device() const noexcept override { return upstream_->device(); }
  MemoryKind kind() const noexcept override { return upstream_->kind(); }
  const MemoryResource& upstream() const noexcept { return *upstream_; }

 protected:
  /// `name` starts the message if `upstream` is null.
  ResourceAdaptor(const char* name, std::shared_ptr<MemoryResource> upstream);
  MemoryResource& upstream() noexcept { return *upstream_; }

 private:
  std::shared_ptr<MemoryResource> upstream_;
};

/// Counts what passes through it.
class BURIN_API CountingResource final : public ResourceAdaptor {
 public:
  struct Counts {
    std::size_t live_blocks = 0;
    std::size_t live_bytes = 0;   // as asked for
    std::size_t peak_bytes = 0;   // most live bytes so far
    std::size_t allocations = 0;  // that succeeded, ever
    std::size_t total_bytes = 0;  // of them
    std::size_t failures = 0;     // requests that threw
  };
  explicit CountingResource(std::shared_ptr<MemoryResource> upstream);
  void* allocate(std::size_t bytes, StreamView stream) override;
  void deallocate(void* data, std::size_t bytes, StreamView stream) noexcept override;
  void deallocate_after(void* data, std::size_t bytes, StreamView stream,
                        std::span<const StreamView> users) noexcept override;
  /// Exact once no other thread allocates or frees; until then the figures may be of different moments.
  Counts counts() const noexcept;

 private:
  void forget(std::size_t bytes) noexcept;
  std::atomic<std::size_t> live_blocks_{0}, live_bytes_{0}, peak_bytes_{0};
  std::atomic<std::size_t> allocations_{0}, total_bytes_{0}, failures_{0};
};

/// Refuses a request that would bring the live bytes, as asked for, above a limit: OutOfMemory, whose figures
/// have the live bytes as `allocated` and `reserved`, and of the limit what is left as `free`, all as
/// `total`.
class BURIN_API LimitingResource final : public ResourceAdaptor {
 public:
  LimitingResource(std::shared_ptr<MemoryResource> upstream, std::size_t limit_bytes);
  void* allocate(std::size_t bytes, StreamView stream) override;
  void deallocate(void* data, std::size_t bytes, StreamView stream) noexcept override;
  void deallocate_after(void* data, std::size_t bytes, StreamView stream,
                        std::span<const StreamView> users) noexcept override;
  std::size_t limit_bytes() const noexcept { return limit_bytes_; }
  std::size_t live_bytes() const noexcept { return live_bytes_; }

 private:
  const std::size_t limit_bytes_;
  std::atomic<std::size_t> live_bytes_{0};
};

/// Which allocations a FailingResource fails; one that several members pick fails once.
struct FailingOptions {
  std::uint64_t nth = 0;        // this one alone, from 1; 0: none
  std::uint64_t every_nth = 0;  // n, 2n, 3n, ...; 0: none
  double probability = 0;       // each with this probability, in [0, 1]
  std::uint64_t seed = 0;       // with it, whether call n fails at random depends on n alone
};

/// Throws OutOfMemory for chosen allocations, to test what happens then.
class BURIN_API FailingResource final : public ResourceAdaptor {
 public:
  /// Armed with `options`; the default fails nothing. Throws Error if the probability is not in [0, 1].
  explicit FailingResource(std::shared_ptr<MemoryResource> upstream, FailingOptions options = {});
  /// Counts allocations from 1 again. Throws as the constructor does.
  void arm(FailingOptions options);
  void disarm() noexcept;
  /// Whether it has failed an allocation since it was last armed; disarming leaves that.
  bool fired() const noexcept;
  void* allocate(std::size_t bytes, StreamView stream) override;

 private:
  mutable std::mutex mutex_;
  FailingOptions options_;
  std::uint64_t calls_ = 0;  // since armed
  bool fired_ = false;
};

/// Sleeps before each allocation and release, to bring threads out of step in tests.
class BURIN_API DelayingResource final : public ResourceAdaptor {
 public:
  /// Call n sleeps for a time from `shortest` to `longest` that depends on the seed and n alone. Throws Error
  /// unless 0 <= shortest <= longest.
  DelayingResource(std::shared_ptr<MemoryResource> upstream, std::chrono::microseconds shortest,
                   std::chrono::microseconds longest, std::uint64_t seed = 0);
  void* allocate(std::size_t bytes, StreamView stream) override;
  void deallocate(void* data, std::size_t bytes, StreamView stream) noexcept override;
  void deallocate_after(void* data, std::size_t bytes, StreamView stream,
                        std::span<const StreamView> users) noexcept override;

 private:
  void sleep() noexcept;
  const std::chrono::microseconds shortest_, longest_;
  const std::uint64_t seed_;
  std::atomic<std::uint64_t> calls_{0};
};

/// A host program's allocator. Both functions may be called from any thread, and get the cudaStream_t of the
/// request (nullptr on the CPU), in whose order the contract of MemoryResource holds.
struct AllocatorCallbacks {
  /// Returns a multiple of `alignment`, or nullptr if there is no memory. What it throws reaches the caller.
  std::function<void*(std::size_t bytes, std::size_t alignment, void* native_stream)> allocate;
  /// Gets what `allocate` got. Must not throw; what it throws all the same is dropped.
  std::function<void(void* data, std::size_t bytes, void* native_stream)> deallocate;
};

/// Memory from a host program's allocator. allocate() throws OutOfMemory where the callback returns nullptr,
/// and Error, having given the memory back, for an address that is not a multiple of kAlignment.
class BURIN_API CallbackResource final : public MemoryResource {
 public:
  /// Throws Error if a callback is missing or `kind` is not of `device` (device memory is a GPU's, the others
  /// are the CPU's), DeviceError if the device does not exist.
  CallbackResource(Device device, MemoryKind kind, AllocatorCallbacks callbacks);
  void* allocate(std::size_t bytes, StreamView stream) override;
  void deallocate(void* data, std::size_t bytes, StreamView stream) noexcept override;
  Device device() const noexcept override { return device_; }
  MemoryKind kind() const noexcept override { return kind_; }

 private:
  const Device device_;
  const MemoryKind kind_;
  const AllocatorCallbacks callbacks_;
};

}  // namespace burin
