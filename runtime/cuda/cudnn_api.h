#pragma once
// Private: the functions of cuDNN 9 that Burin calls. The library is opened when the table is first asked
// for.

#include <cudnn.h>

namespace burin::cuda {

/// Members are named as the functions they hold.
struct CudnnApi {
  decltype(&::cudnnGetVersion) cudnnGetVersion;
  decltype(&::cudnnGetErrorString) cudnnGetErrorString;
  decltype(&::cudnnGetLastErrorString) cudnnGetLastErrorString;
  decltype(&::cudnnCreate) cudnnCreate;
  decltype(&::cudnnDestroy) cudnnDestroy;
  decltype(&::cudnnSetStream) cudnnSetStream;
  decltype(&::cudnnBackendCreateDescriptor) cudnnBackendCreateDescriptor;
  decltype(&::cudnnBackendDestroyDescriptor) cudnnBackendDestroyDescriptor;
  decltype(&::cudnnBackendSetAttribute) cudnnBackendSetAttribute;
  decltype(&::cudnnBackendGetAttribute) cudnnBackendGetAttribute;
  decltype(&::cudnnBackendFinalize) cudnnBackendFinalize;
  decltype(&::cudnnBackendExecute) cudnnBackendExecute;
  decltype(&::cudnnCreateTensorDescriptor) cudnnCreateTensorDescriptor;
  decltype(&::cudnnSetTensor4dDescriptorEx) cudnnSetTensor4dDescriptorEx;
  decltype(&::cudnnDestroyTensorDescriptor) cudnnDestroyTensorDescriptor;
  decltype(&::cudnnCreatePoolingDescriptor) cudnnCreatePoolingDescriptor;
  decltype(&::cudnnSetPooling2dDescriptor) cudnnSetPooling2dDescriptor;
  decltype(&::cudnnDestroyPoolingDescriptor) cudnnDestroyPoolingDescriptor;
  decltype(&::cudnnPoolingForward) cudnnPoolingForward;
};

/// The table of libcudnn.so.9; the same one for the whole process, loaded by the first call that succeeds.
/// Throws LibraryError with code -1 where the library or a function is missing.
const CudnnApi& cudnn_api();

/// Throws LibraryError with op, call, and cuDNN's name and text of the error unless `status` is success.
void check_cudnn(cudnnStatus_t status, const char* call, const char* op);

}  // namespace burin::cuda

/// BURIN_CUDNN("conv2d", cudnnBackendFinalize, descriptor) calls through the table and checks.
#define BURIN_CUDNN(op, function, ...) \
  ::burin::cuda::check_cudnn(::burin::cuda::cudnn_api().function(__VA_ARGS__), #function, op)
