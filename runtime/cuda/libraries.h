#pragma once
// Private: the library handles of one context.

#include <burin/runtime/device.h>
#include <burin/runtime/stream.h>

#include <memory>

namespace burin::detail {

/// Handles of the device's libraries, made when first asked for. Each names the library and what is missing
/// in a LibraryError where it cannot be opened. Bound to one stream.
class Libraries {
 public:
  Libraries(Device device, StreamView stream) : device_(device), stream_(stream) {}

  /// cudnnHandle_t and cublasLtHandle_t. Only where CUDA is built.
  void* cudnn();
  void* cublaslt();
  /// Made so far.
  int handles() const noexcept { return (cudnn_ ? 1 : 0) + (cublaslt_ ? 1 : 0); }

 private:
  using Handle = std::unique_ptr<void, void (*)(void*)>;
  Device device_;
  StreamView stream_;
  Handle cudnn_{nullptr, nullptr};
  Handle cublaslt_{nullptr, nullptr};
};

}  // namespace burin::detail
