#pragma once

#include <burin/runtime/export.h>
#include <burin/runtime/memory/memory_resource.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace burin {

/// A block of memory, shared by the tensors that view it and given back with the last of them, in the order
/// of the stream it was allocated on. Keeps its resource and that stream alive.
class BURIN_API Buffer {
 public:
  /// Throws OutOfMemory. `data()` is nullptr for 0 bytes.
  static std::shared_ptr<Buffer> allocate(std::shared_ptr<MemoryResource> resource, std::size_t bytes,
                                          StreamView stream);
  /// Memory of the caller's. `deleter`, if any, runs once, after the last tensor is gone, on that tensor's
  /// thread; it must not throw. It also runs if this call throws.
  static std::shared_ptr<Buffer> wrap(void* data, std::size_t bytes, Device device,
                                      std::function<void(void*)> deleter);

  virtual ~Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  Device device() const noexcept { return device_; }
  MemoryKind kind() const noexcept { return kind_; }
  /// The stream in whose order the memory is given back; refers to nothing for memory of the caller's.
  virtual StreamView stream() const noexcept { return {}; }

 protected:
  Buffer(void* data, std::size_t bytes, Device device, MemoryKind kind)
      : data_(data), bytes_(bytes), device_(device), kind_(kind) {}

 private:
  void* data_;
  std::size_t bytes_;
  Device device_;
  MemoryKind kind_;
};

}  // namespace burin
