#include <burin/runtime/check.h>
#include <burin/runtime/cuda/cuda_api.h>

#include <atomic>
#include <mutex>

namespace burin::cuda {
namespace {

constexpr CudaApi kLinked = {
    .cudaGetDeviceCount = ::cudaGetDeviceCount,
    .cudaDriverGetVersion = ::cudaDriverGetVersion,
    .cudaRuntimeGetVersion = ::cudaRuntimeGetVersion,
    .cudaGetDeviceProperties = ::cudaGetDeviceProperties,
    .cudaDeviceGetAttribute = ::cudaDeviceGetAttribute,
    .cudaGetDevice = ::cudaGetDevice,
    .cudaSetDevice = ::cudaSetDevice,
    .cudaDeviceSynchronize = ::cudaDeviceSynchronize,
    .cudaGetLastError = ::cudaGetLastError,
    .cudaGetErrorName = ::cudaGetErrorName,
    .cudaGetErrorString = ::cudaGetErrorString,
    .cudaDeviceGetStreamPriorityRange = ::cudaDeviceGetStreamPriorityRange,
    .cudaStreamCreateWithPriority = ::cudaStreamCreateWithPriority,
    .cudaStreamDestroy = ::cudaStreamDestroy,
    .cudaStreamQuery = ::cudaStreamQuery,
    .cudaStreamSynchronize = ::cudaStreamSynchronize,
    .cudaStreamWaitEvent = ::cudaStreamWaitEvent,
    .cudaEventCreateWithFlags = ::cudaEventCreateWithFlags,
    .cudaEventDestroy = ::cudaEventDestroy,
    .cudaEventRecord = ::cudaEventRecord,
    .cudaEventQuery = ::cudaEventQuery,
    .cudaEventSynchronize = ::cudaEventSynchronize,
    .cudaEventElapsedTime = ::cudaEventElapsedTime,
    .cudaMemcpyAsync = ::cudaMemcpyAsync,
    .cudaMemsetAsync = ::cudaMemsetAsync,
    .cudaMemGetInfo = ::cudaMemGetInfo,
    .cudaMemPoolCreate = ::cudaMemPoolCreate,
    .cudaMemPoolDestroy = ::cudaMemPoolDestroy,
    .cudaMemPoolSetAttribute = ::cudaMemPoolSetAttribute,
    .cudaMemPoolGetAttribute = ::cudaMemPoolGetAttribute,
    .cudaMallocFromPoolAsync = ::cudaMallocFromPoolAsync,
    .cudaFreeAsync = ::cudaFreeAsync,
    .cudaHostAlloc = ::cudaHostAlloc,
    .cudaFreeHost = ::cudaFreeHost,
    .cudaLaunchKernelExC = ::cudaLaunchKernelExC,
    .cudaFuncSetAttribute = ::cudaFuncSetAttribute,
};

std::atomic<const CudaApi*> table_in_force{&kLinked};

/// The first error that CUDA cannot recover from. CUDA reports it for every device of the process, so there
/// is one.
struct Loss {
  std::atomic<bool> happened{false};
  std::mutex mutex;
  std::string message;
  int code = 0;
};
Loss& loss() {
  static Loss* kept = new Loss;  // never destroyed: streams may be released during exit
  return *kept;
}

bool is_unrecoverable(cudaError_t code) {
  switch (code) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorExternalDevice: return true;
    default: return false;
  }
}

[[noreturn]] void throw_lost(const char* op) {
  Loss& first = loss();
  const std::lock_guard lock(first.mutex);
  throw CudaError(fmt::format("{}: CUDA cannot be used since it failed earlier: {}", op, first.message),
                  first.code);
}

}  // namespace

const CudaApi& api() noexcept { return *table_in_force.load(std::memory_order_acquire); }

const CudaApi& usable_api(const char* op) {
  if (loss().happened.load(std::memory_order_acquire)) [[unlikely]]
    throw_lost(op);
  return api();
}

void check(cudaError_t code, const char* call, const char* op) {
  if (code == cudaSuccess) [[likely]]
    return;
  const std::string message = fmt::format("{}: {} failed: {} ({})", op, call, api().cudaGetErrorName(code),
                                          api().cudaGetErrorString(code));
  ignore(code);
  if (code == cudaErrorMemoryAllocation) {
    OutOfMemory::Figures figures;
    ignore(api().cudaMemGetInfo(&figures.free, &figures.total));
    throw OutOfMemory(message, figures);
  }
  if (is_unrecoverable(code)) {
    Loss& first = loss();
    const std::lock_guard lock(first.mutex);
    if (!first.happened) {
      first.message = message;
      first.code = code;
      first.happened.store(true, std::memory_order_release);
    }
  }
  throw CudaError(message, code);
}

void ignore(cudaError_t code) noexcept {
  if (code != cudaSuccess && code != cudaErrorCudartUnloading) static_cast<void>(api().cudaGetLastError());
}

bool is_unloading() noexcept {
  int device = 0;
  return api().cudaGetDevice(&device) == cudaErrorCudartUnloading;
}

ScopedCudaApi::ScopedCudaApi(const CudaApi& table) : previous_(table_in_force.exchange(&table)) {
  loss().happened = false;
}

ScopedCudaApi::~ScopedCudaApi() {
  table_in_force = previous_;
  loss().happened = false;
}

}  // namespace burin::cuda
