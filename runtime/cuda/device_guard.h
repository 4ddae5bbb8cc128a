#pragma once
// Private.

#include <burin/runtime/cuda/cuda_api.h>

namespace burin::cuda {

/// Makes a device the calling thread's current one for a scope. Switches only if it is not so already.
class DeviceGuard {
 public:
  DeviceGuard(int device, const char* op) : previous_(device) {
    BURIN_CUDA(op, cudaGetDevice, &previous_);
    if (previous_ == device) return;
    BURIN_CUDA(op, cudaSetDevice, device);
    switched_ = true;
  }
  ~DeviceGuard() {
    if (switched_) ignore(api().cudaSetDevice(previous_));
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_;
  bool switched_ = false;
};

}  // namespace burin::cuda
