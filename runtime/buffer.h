#pragma once

#include <burin/runtime/export.h>
#include <burin/runtime/memory/memory_resource.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace burin {

/// A block of memory, shared by the tensors that view it and given back with the last of them, in the order
/// of the stream it was allocated on. Keeps its resource and that stream alive.
class BURIN_API Buffer {
 public:
  /// Throws OutOfMemory. `data()` is nullptr for 0 bytes.
  static std::shared_ptr<Buffer> allocate(std::shared_ptr<MemoryResource> resource, std::size_t bytes,
                                          StreamView stream);
  /// Memory of the caller's. `deleter`, if any, runs once, when the last tensor is gone and what was queued
  /// by then on the streams of record_use() is done: on the thread that lets the last tensor go or, if work
  /// is still queued, on the one that next synchronizes with that stream, lets other wrapped memory go that
  /// it uses, or destroys it (which waits). It must not throw. It also runs if this call throws; if the
  /// device is lost, it never runs.
  static std::shared_ptr<Buffer> wrap(void* data, std::size_t bytes, Device device,
                                      std::function<void(void*)> deleter);

  virtual ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  Device device() const noexcept { return device_; }
  MemoryKind kind() const noexcept { return kind_; }
  /// The stream in whose order the memory is given back; refers to nothing for memory of the caller's.
  virtual StreamView stream() const noexcept { return {}; }

  /// See Tensor::record_use. Thread-safe.
  void record_use(StreamView stream);
  /// Whether a stream other than its own was recorded.
  bool is_used_elsewhere() const noexcept { return users_.load(std::memory_order_acquire) != nullptr; }

 protected:
  Buffer(void* data, std::size_t bytes, Device device, MemoryKind kind)
      : data_(data), bytes_(bytes), device_(device), kind_(kind) {}
  /// The streams of record_use. For destructors: nobody records any more.
  std::span<const StreamView> users() const noexcept;

 private:
  struct Users;
  void* data_;
  std::size_t bytes_;
  std::atomic<Users*> users_{nullptr};  // made with the first
  Device device_;
  MemoryKind kind_;
};

}  // namespace burin
