#pragma once
// Private: the functions of cuBLASLt 13 that Burin calls. The library is opened when the table is first asked
// for.

#include <cublasLt.h>

namespace burin::cuda {

/// Members are named as the functions they hold.
struct CublasLtApi {
  decltype(&::cublasLtGetVersion) cublasLtGetVersion;
  decltype(&::cublasLtGetStatusName) cublasLtGetStatusName;
  decltype(&::cublasLtGetStatusString) cublasLtGetStatusString;
  decltype(&::cublasLtCreate) cublasLtCreate;
  decltype(&::cublasLtDestroy) cublasLtDestroy;
  decltype(&::cublasLtMatmulDescCreate) cublasLtMatmulDescCreate;
  decltype(&::cublasLtMatmulDescDestroy) cublasLtMatmulDescDestroy;
  decltype(&::cublasLtMatmulDescSetAttribute) cublasLtMatmulDescSetAttribute;
  decltype(&::cublasLtMatrixLayoutCreate) cublasLtMatrixLayoutCreate;
  decltype(&::cublasLtMatrixLayoutDestroy) cublasLtMatrixLayoutDestroy;
  decltype(&::cublasLtMatrixLayoutSetAttribute) cublasLtMatrixLayoutSetAttribute;
  decltype(&::cublasLtMatmulPreferenceCreate) cublasLtMatmulPreferenceCreate;
  decltype(&::cublasLtMatmulPreferenceDestroy) cublasLtMatmulPreferenceDestroy;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) cublasLtMatmulPreferenceSetAttribute;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) cublasLtMatmulAlgoGetHeuristic;
  decltype(&::cublasLtMatmul) cublasLtMatmul;
};

/// The table of libcublasLt.so.13; the same one for the whole process, loaded by the first call that
/// succeeds. Throws LibraryError with code -1 where the library or a function is missing.
const CublasLtApi& cublaslt_api();

/// Throws LibraryError with op, call, and cuBLASLt's name and text of the error unless `status` is success.
void check_cublaslt(cublasStatus_t status, const char* call, const char* op);

}  // namespace burin::cuda

/// BURIN_CUBLASLT("matmul", cublasLtMatmulDescCreate, &descriptor, ...) calls through the table and checks.
#define BURIN_CUBLASLT(op, function, ...) \
  ::burin::cuda::check_cublaslt(::burin::cuda::cublaslt_api().function(__VA_ARGS__), #function, op)
