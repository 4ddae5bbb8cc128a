#include <burin/runtime/check.h>
#include <burin/runtime/cuda/cuda_api.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <pthread.h>
#include <string_view>
#include <utility>

namespace burin::cuda {
namespace {

// The driver's functions are found through the runtime, so that Burin does not need libcuda to start. They
// have been there, in this form, since CUDA 10.2; the results of the driver and the runtime share numbers.
constexpr unsigned kDriverVersion = 10020;

struct FunctionName {
  template <std::size_t kSize>
  consteval FunctionName(const char (&text)[kSize]) {
    std::copy_n(text, kSize, value);
  }
  char value[40] = {};
};

template <FunctionName kName, class... Arguments>
cudaError_t call_driver(Arguments... arguments) {
  // Found once: an address, the same for every caller.
  static const auto function = [] {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found{};
    ::cudaGetDriverEntryPointByVersion(kName.value, &address, kDriverVersion, cudaEnableDefault, &found);
    return reinterpret_cast<CUresult (*)(Arguments...)>(address);
  }();
  return function ? static_cast<cudaError_t>(function(arguments...)) : cudaErrorNotSupported;
}

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
    .cudaStreamGetPriority = ::cudaStreamGetPriority,
    .cudaStreamQuery = ::cudaStreamQuery,
    .cudaStreamSynchronize = ::cudaStreamSynchronize,
    .cudaStreamWaitEvent = ::cudaStreamWaitEvent,
    .cudaEventCreateWithFlags = ::cudaEventCreateWithFlags,
    .cudaEventDestroy = ::cudaEventDestroy,
    .cudaEventRecord = ::cudaEventRecord,
    .cudaEventRecordWithFlags = ::cudaEventRecordWithFlags,
    .cudaEventQuery = ::cudaEventQuery,
    .cudaEventSynchronize = ::cudaEventSynchronize,
    .cudaEventElapsedTime = ::cudaEventElapsedTime,
    .cudaMemcpyAsync = ::cudaMemcpyAsync,
    .cudaMemsetAsync = ::cudaMemsetAsync,
    .cudaMemGetInfo = ::cudaMemGetInfo,
    .cudaMalloc = ::cudaMalloc,
    .cudaFree = ::cudaFree,
    .cudaHostAlloc = ::cudaHostAlloc,
    .cudaFreeHost = ::cudaFreeHost,
    .cudaLaunchKernelExC = ::cudaLaunchKernelExC,
    .cudaFuncSetAttribute = ::cudaFuncSetAttribute,
    .cudaStreamBeginCapture = ::cudaStreamBeginCapture,
    .cudaStreamEndCapture = ::cudaStreamEndCapture,
    .cudaStreamGetCaptureInfo = ::cudaStreamGetCaptureInfo,
    .cudaStreamUpdateCaptureDependencies = ::cudaStreamUpdateCaptureDependencies,
    .cudaThreadExchangeStreamCaptureMode = ::cudaThreadExchangeStreamCaptureMode,
    .cudaGraphDestroy = ::cudaGraphDestroy,
    .cudaGraphCreate = ::cudaGraphCreate,
    .cudaGraphAddChildGraphNode = ::cudaGraphAddChildGraphNode,
    .cudaGraphGetNodes = ::cudaGraphGetNodes,
    .cudaGraphGetEdges = ::cudaGraphGetEdges,
    .cudaGraphNodeGetType = ::cudaGraphNodeGetType,
    .cudaGraphKernelNodeGetParams = ::cudaGraphKernelNodeGetParams,
    .cudaGraphKernelNodeSetParams = ::cudaGraphKernelNodeSetParams,
    .cudaFuncGetParamInfo = ::cudaFuncGetParamInfo,
    .cudaGraphInstantiate = ::cudaGraphInstantiate,
    .cudaGraphExecDestroy = ::cudaGraphExecDestroy,
    .cudaGraphExecKernelNodeSetParams = ::cudaGraphExecKernelNodeSetParams,
    .cudaGraphUpload = ::cudaGraphUpload,
    .cudaGraphLaunch = ::cudaGraphLaunch,
    .cuMemGetAllocationGranularity = call_driver<"cuMemGetAllocationGranularity">,
    .cuMemAddressReserve = call_driver<"cuMemAddressReserve">,
    .cuMemAddressFree = call_driver<"cuMemAddressFree">,
    .cuMemCreate = call_driver<"cuMemCreate">,
    .cuMemRelease = call_driver<"cuMemRelease">,
    .cuMemMap = call_driver<"cuMemMap">,
    .cuMemUnmap = call_driver<"cuMemUnmap">,
    .cuMemSetAccess = call_driver<"cuMemSetAccess">,
};

/// Becomes any function of the table, and does nothing.
struct Unloaded {
  template <class... Arguments>
  using Function = cudaError_t (*)(Arguments...);
  template <class... Arguments>
  constexpr operator Function<Arguments...>() const {
    return [](Arguments...) { return cudaErrorCudartUnloading; };
  }
  constexpr operator decltype(CudaApi::cudaGetErrorName)() const { return ::cudaGetErrorName; }
};

template <std::size_t... kFunctions>
constexpr CudaApi make_unloaded(std::index_sequence<kFunctions...>) {
  CudaApi table = {(static_cast<void>(kFunctions), Unloaded{})...};
  table.cudaGetErrorString = ::cudaGetErrorString;
  return table;
}
constexpr CudaApi kUnloaded = make_unloaded(std::make_index_sequence<sizeof(CudaApi) / sizeof(void*)>());

}  // namespace

struct ApiState {
  explicit constexpr ApiState(const CudaApi* table_in) : table(table_in) {}
  constexpr ApiState(const CudaApi* table_in, int code_in, std::string_view message_in)
      : table(table_in), lost(true), code(code_in) {
    std::copy(message_in.begin(), message_in.end(), message);
  }

  const CudaApi* table;
  // The first error that CUDA cannot recover from. CUDA reports it for every device of the process, so there
  // is one.
  std::atomic<bool> lost{false};  // the rest is written before this, and not again
  std::mutex mutex;               // of writers
  int code = 0;
  char message[512] = {};  // no std::string: handles may be released while the process exits
};

namespace {

constinit ApiState linked{&kLinked};
constinit ApiState forked{
    &kUnloaded, cudaErrorInitializationError,
    "CUDA was used before fork(), and a forked process cannot use it (fork before the first "
    "use of CUDA, or exec in the child)"};
constinit std::atomic<ApiState*> in_force{&linked};

ApiState& state() noexcept { return *in_force.load(std::memory_order_acquire); }

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

void keep_first_loss(const std::string& message, int code) {
  ApiState& now = state();
  const std::lock_guard lock(now.mutex);
  if (now.lost) return;
  const std::string text = "CUDA cannot be used since it failed earlier: " + message;
  text.copy(now.message, sizeof now.message - 1);
  now.code = code;
  now.lost.store(true, std::memory_order_release);
}

}  // namespace

const CudaApi& api() noexcept { return *state().table; }

const CudaApi& usable_api(const char* op) {
  const ApiState& now = state();
  if (now.lost.load(std::memory_order_acquire)) [[unlikely]]
    throw CudaError(fmt::format("{}: {}", op, now.message), now.code);
  return *now.table;
}

const char* describe_loss() noexcept {
  const ApiState& now = state();
  return now.lost.load(std::memory_order_acquire) ? now.message : nullptr;
}

void watch_forks() {
  // Registered once, for the process; the handler only stores an address.
  static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { in_force.store(&forked, std::memory_order_release); });
  BURIN_CHECK(registered == 0, Error, "cuda: pthread_atfork failed: error {}", registered);
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
  if (is_unrecoverable(code)) keep_first_loss(message, code);
  throw CudaError(message, code);
}

void ignore(cudaError_t code) noexcept {
  if (code != cudaSuccess && code != cudaErrorCudartUnloading) static_cast<void>(api().cudaGetLastError());
}

bool is_unloading() noexcept {
  int device = 0;
  return api().cudaGetDevice(&device) == cudaErrorCudartUnloading;
}

ScopedCudaApi::ScopedCudaApi(const CudaApi& table)
    : state_(std::make_unique<ApiState>(&table)), previous_(in_force.exchange(state_.get())) {}

ScopedCudaApi::~ScopedCudaApi() {
  ApiState* mine = state_.get();
  in_force.compare_exchange_strong(mine, previous_);  // not so in a forked child
}

}  // namespace burin::cuda
