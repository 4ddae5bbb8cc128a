#include <burin/runtime/check.h>
#include <burin/runtime/cuda/cublaslt_api.h>
#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/cuda/dynamic_library.h>

namespace burin::cuda {
namespace {

CublasLtApi load_cublaslt() {
  DynamicLibrary library("cuBLASLt", "libcublasLt.so.13");
  CublasLtApi api;
#define BURIN_LOAD(function) library.load(api.function, #function)
  BURIN_LOAD(cublasLtGetVersion);
  BURIN_LOAD(cublasLtGetStatusName);
  BURIN_LOAD(cublasLtGetStatusString);
  BURIN_LOAD(cublasLtCreate);
  BURIN_LOAD(cublasLtDestroy);
  BURIN_LOAD(cublasLtMatmulDescCreate);
  BURIN_LOAD(cublasLtMatmulDescDestroy);
  BURIN_LOAD(cublasLtMatmulDescSetAttribute);
  BURIN_LOAD(cublasLtMatrixLayoutCreate);
  BURIN_LOAD(cublasLtMatrixLayoutDestroy);
  BURIN_LOAD(cublasLtMatrixLayoutSetAttribute);
  BURIN_LOAD(cublasLtMatmulPreferenceCreate);
  BURIN_LOAD(cublasLtMatmulPreferenceDestroy);
  BURIN_LOAD(cublasLtMatmulPreferenceSetAttribute);
  BURIN_LOAD(cublasLtMatmulAlgoGetHeuristic);
  BURIN_LOAD(cublasLtMatmul);
#undef BURIN_LOAD
  library.keep_open();
  return api;
}

}  // namespace

const CublasLtApi& cublaslt_api() {
  static const CublasLtApi loaded = load_cublaslt();  // immutable; a throw leaves it to the next call
  return loaded;
}

void check_cublaslt(cublasStatus_t status, const char* call, const char* op) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  ignore(api().cudaGetLastError());
  throw LibraryError(
      fmt::format("{}: {} failed: {} ({})", op, call, cublaslt_api().cublasLtGetStatusName(status),
                  cublaslt_api().cublasLtGetStatusString(status)),
      status);
}

}  // namespace burin::cuda
