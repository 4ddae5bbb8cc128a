#include <burin/runtime/cuda/cublaslt_api.h>
#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/cuda/cudnn_api.h>
#include <burin/runtime/cuda/device_guard.h>
#include <burin/runtime/cuda/libraries.h>

namespace burin::detail {
namespace {

void destroy_cudnn(void* handle) {
  if (!cuda::is_unloading()) cuda::cudnn_api().cudnnDestroy(static_cast<cudnnHandle_t>(handle));
}

void destroy_cublaslt(void* handle) {
  if (!cuda::is_unloading()) cuda::cublaslt_api().cublasLtDestroy(static_cast<cublasLtHandle_t>(handle));
}

}  // namespace

void* Libraries::cudnn() {
  static_cast<void>(cuda::usable_api("cuDNN"));  // its own calls do not ask
  if (!cudnn_) {
    const cuda::DeviceGuard guard(device_.index, "cuDNN");
    cudnnHandle_t handle = nullptr;
    BURIN_CUDNN("cuDNN", cudnnCreate, &handle);
    Handle owned(handle, destroy_cudnn);
    BURIN_CUDNN("cuDNN", cudnnSetStream, handle, static_cast<cudaStream_t>(stream_.native_handle()));
    cudnn_ = std::move(owned);
  }
  return cudnn_.get();
}

void* Libraries::cublaslt() {
  static_cast<void>(cuda::usable_api("cuBLASLt"));
  if (!cublaslt_) {
    const cuda::DeviceGuard guard(device_.index, "cuBLASLt");
    cublasLtHandle_t handle = nullptr;
    BURIN_CUBLASLT("cuBLASLt", cublasLtCreate, &handle);
    cublaslt_ = Handle(handle, destroy_cublaslt);
  }
  return cublaslt_.get();
}

}  // namespace burin::detail
