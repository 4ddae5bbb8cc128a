#include <burin/runtime/check.h>
#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/cuda/cudnn_api.h>
#include <burin/runtime/cuda/dynamic_library.h>

namespace burin::cuda {
namespace {

CudnnApi load_cudnn() {
  DynamicLibrary library("cuDNN", "libcudnn.so.9");
  CudnnApi api;
#define BURIN_LOAD(function) library.load(api.function, #function)
  BURIN_LOAD(cudnnGetVersion);
  BURIN_LOAD(cudnnGetErrorString);
  BURIN_LOAD(cudnnGetLastErrorString);
  BURIN_LOAD(cudnnCreate);
  BURIN_LOAD(cudnnDestroy);
  BURIN_LOAD(cudnnSetStream);
  BURIN_LOAD(cudnnBackendCreateDescriptor);
  BURIN_LOAD(cudnnBackendDestroyDescriptor);
  BURIN_LOAD(cudnnBackendSetAttribute);
  BURIN_LOAD(cudnnBackendGetAttribute);
  BURIN_LOAD(cudnnBackendFinalize);
  BURIN_LOAD(cudnnBackendExecute);
  BURIN_LOAD(cudnnCreateTensorDescriptor);
  BURIN_LOAD(cudnnSetTensor4dDescriptorEx);
  BURIN_LOAD(cudnnDestroyTensorDescriptor);
  BURIN_LOAD(cudnnCreatePoolingDescriptor);
  BURIN_LOAD(cudnnSetPooling2dDescriptor);
  BURIN_LOAD(cudnnDestroyPoolingDescriptor);
  BURIN_LOAD(cudnnPoolingForward);
#undef BURIN_LOAD
  library.keep_open();
  return api;
}

}  // namespace

const CudnnApi& cudnn_api() {
  static const CudnnApi loaded = load_cudnn();  // immutable; a throw leaves it to the next call
  return loaded;
}

void check_cudnn(cudnnStatus_t status, const char* call, const char* op) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  char detail[512] = {};
  cudnn_api().cudnnGetLastErrorString(detail, sizeof detail);
  ignore(api().cudaGetLastError());
  throw LibraryError(fmt::format("{}: {} failed: {}{}{}", op, call, cudnn_api().cudnnGetErrorString(status),
                                 detail[0] ? ": " : "", detail),
                     status);
}

}  // namespace burin::cuda
