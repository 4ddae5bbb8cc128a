#pragma once
// Private: the functions of the CUDA runtime that Burin calls, as a table that tests can replace, and the one
// check of their results.

#include <burin/runtime/error.h>

#include <memory>

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace burin::cuda {

/// Members are named as the functions they hold. Those that cuda_runtime.h overloads have their C signature
/// written out. The driver's functions for virtual memory (cuMem...) return the runtime's code of their
/// result, and cudaErrorNotSupported where the driver lacks them.
struct CudaApi {
  decltype(&::cudaGetDeviceCount) cudaGetDeviceCount;
  decltype(&::cudaDriverGetVersion) cudaDriverGetVersion;
  decltype(&::cudaRuntimeGetVersion) cudaRuntimeGetVersion;
  decltype(&::cudaGetDeviceProperties) cudaGetDeviceProperties;
  decltype(&::cudaDeviceGetAttribute) cudaDeviceGetAttribute;
  decltype(&::cudaGetDevice) cudaGetDevice;
  decltype(&::cudaSetDevice) cudaSetDevice;
  decltype(&::cudaDeviceSynchronize) cudaDeviceSynchronize;
  decltype(&::cudaGetLastError) cudaGetLastError;
  decltype(&::cudaGetErrorName) cudaGetErrorName;
  decltype(&::cudaGetErrorString) cudaGetErrorString;
  decltype(&::cudaDeviceGetStreamPriorityRange) cudaDeviceGetStreamPriorityRange;
  decltype(&::cudaStreamCreateWithPriority) cudaStreamCreateWithPriority;
  decltype(&::cudaStreamDestroy) cudaStreamDestroy;
  decltype(&::cudaStreamGetPriority) cudaStreamGetPriority;
  decltype(&::cudaStreamQuery) cudaStreamQuery;
  decltype(&::cudaStreamSynchronize) cudaStreamSynchronize;
  decltype(&::cudaStreamWaitEvent) cudaStreamWaitEvent;
  decltype(&::cudaEventCreateWithFlags) cudaEventCreateWithFlags;
  decltype(&::cudaEventDestroy) cudaEventDestroy;
  decltype(&::cudaEventRecord) cudaEventRecord;
  decltype(&::cudaEventRecordWithFlags) cudaEventRecordWithFlags;
  decltype(&::cudaEventQuery) cudaEventQuery;
  decltype(&::cudaEventSynchronize) cudaEventSynchronize;
  decltype(&::cudaEventElapsedTime) cudaEventElapsedTime;
  decltype(&::cudaMemcpyAsync) cudaMemcpyAsync;
  decltype(&::cudaMemsetAsync) cudaMemsetAsync;
  decltype(&::cudaMemGetInfo) cudaMemGetInfo;
  cudaError_t (*cudaMalloc)(void**, std::size_t);
  decltype(&::cudaFree) cudaFree;
  cudaError_t (*cudaHostAlloc)(void**, std::size_t, unsigned int);
  decltype(&::cudaFreeHost) cudaFreeHost;
  decltype(&::cudaLaunchKernelExC) cudaLaunchKernelExC;
  cudaError_t (*cudaFuncSetAttribute)(const void*, cudaFuncAttribute, int);
  decltype(&::cudaStreamBeginCapture) cudaStreamBeginCapture;
  decltype(&::cudaStreamEndCapture) cudaStreamEndCapture;
  cudaError_t (*cudaStreamGetCaptureInfo)(cudaStream_t, cudaStreamCaptureStatus*, unsigned long long* id,
                                          cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**,
                                          std::size_t*);
  decltype(&::cudaStreamUpdateCaptureDependencies) cudaStreamUpdateCaptureDependencies;
  decltype(&::cudaThreadExchangeStreamCaptureMode) cudaThreadExchangeStreamCaptureMode;
  decltype(&::cudaGraphDestroy) cudaGraphDestroy;
  decltype(&::cudaGraphCreate) cudaGraphCreate;
  decltype(&::cudaGraphAddChildGraphNode) cudaGraphAddChildGraphNode;
  decltype(&::cudaGraphGetNodes) cudaGraphGetNodes;
  decltype(&::cudaGraphGetEdges) cudaGraphGetEdges;
  decltype(&::cudaGraphNodeGetType) cudaGraphNodeGetType;
  decltype(&::cudaGraphKernelNodeGetParams) cudaGraphKernelNodeGetParams;
  decltype(&::cudaGraphKernelNodeSetParams) cudaGraphKernelNodeSetParams;
  cudaError_t (*cudaFuncGetParamInfo)(const void* kernel, std::size_t index, std::size_t* offset,
                                      std::size_t* bytes);
  cudaError_t (*cudaGraphInstantiate)(cudaGraphExec_t*, cudaGraph_t, unsigned long long flags);
  decltype(&::cudaGraphExecDestroy) cudaGraphExecDestroy;
  decltype(&::cudaGraphExecKernelNodeSetParams) cudaGraphExecKernelNodeSetParams;
  decltype(&::cudaGraphUpload) cudaGraphUpload;
  decltype(&::cudaGraphLaunch) cudaGraphLaunch;
  cudaError_t (*cuMemGetAllocationGranularity)(std::size_t*, const CUmemAllocationProp*,
                                               CUmemAllocationGranularity_flags);
  cudaError_t (*cuMemAddressReserve)(CUdeviceptr*, std::size_t bytes, std::size_t alignment, CUdeviceptr hint,
                                     unsigned long long flags);
  cudaError_t (*cuMemAddressFree)(CUdeviceptr, std::size_t);
  cudaError_t (*cuMemCreate)(CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*,
                             unsigned long long flags);
  cudaError_t (*cuMemRelease)(CUmemGenericAllocationHandle);
  cudaError_t (*cuMemMap)(CUdeviceptr, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle,
                          unsigned long long flags);
  cudaError_t (*cuMemUnmap)(CUdeviceptr, std::size_t);
  cudaError_t (*cuMemSetAccess)(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t count);
};

/// The table in force: the CUDA runtime linked into Burin, unless a test has put another in its place.
const CudaApi& api() noexcept;
/// The same for a call on behalf of `op`. Throws the CudaError that lost the device, if one has.
const CudaApi& usable_api(const char* op);
/// Why CUDA is lost to this process; nullptr if it is not.
const char* describe_loss() noexcept;
/// From now on CUDA is lost to children that this process forks, as a driver that was in use does not survive
/// it: no function of the table reaches the driver there, and each acts as if CUDA had been unloaded, so that
/// inherited handles are left alone.
void watch_forks();
/// The lowest architecture that this build has kernels for, as 100 * major + 10 * minor.
int lowest_architecture() noexcept;
/// The architecture whose kernels of this build a device runs, itself written like that; 0: none.
int architecture_for(int device) noexcept;

/// Returns if `code` is success. Otherwise throws OutOfMemory for cudaErrorMemoryAllocation, else CudaError,
/// with op, call, and CUDA's name and text of the error, and clears CUDA's last error. After an error that
/// CUDA cannot recover from (an illegal address, an assertion on the device, ...) every call in the process
/// fails: the first such error is kept, and usable_api repeats it.
void check(cudaError_t code, const char* call, const char* op);

/// For destructors: clears the last error that `code` left, whatever it was.
void ignore(cudaError_t code) noexcept;

/// True once the process has begun to unload CUDA: handles are gone then, and must not be destroyed.
bool is_unloading() noexcept;

struct ApiState;

/// For tests: puts `table` in force, with no device lost, and restores what was there. Not for use while
/// other threads call CUDA.
class ScopedCudaApi {
 public:
  explicit ScopedCudaApi(const CudaApi& table);
  ~ScopedCudaApi();
  ScopedCudaApi(const ScopedCudaApi&) = delete;
  ScopedCudaApi& operator=(const ScopedCudaApi&) = delete;

 private:
  std::unique_ptr<ApiState> state_;
  ApiState* previous_;
};

}  // namespace burin::cuda

/// BURIN_CUDA("copy", cudaMemcpyAsync, dst, src, ...) calls through the table and checks.
#define BURIN_CUDA(op, function, ...) \
  ::burin::cuda::check(::burin::cuda::usable_api(op).function(__VA_ARGS__), #function, op)
