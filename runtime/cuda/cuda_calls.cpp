#include <burin/runtime/check.h>
#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/cuda/device_guard.h>

#include <algorithm>

namespace burin::cuda {
namespace {

constexpr int kEarlyKernels = 900;  // the first architecture that has them

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string describe_unavailable(cudaError_t code) {
  if (const char* loss = describe_loss()) return loss;
  int driver = 0;
  int runtime = 0;
  ignore(api().cudaDriverGetVersion(&driver));
  ignore(api().cudaRuntimeGetVersion(&runtime));
  if (code == cudaErrorInsufficientDriver)
    return driver == 0
               ? "no NVIDIA driver is installed"
               : fmt::format("the NVIDIA driver is too old: it supports CUDA {}, and this Burin needs {}",
                             version_text(driver), version_text(runtime));
  if (code == cudaErrorNoDevice || code == cudaSuccess)
    return "the NVIDIA driver finds no device (none is there, or CUDA_VISIBLE_DEVICES hides it)";
  return fmt::format("{} ({})", api().cudaGetErrorString(code), api().cudaGetErrorName(code));
}

bool is_finished(cudaError_t code, const char* call, const char* op) {
  if (code == cudaErrorNotReady) {
    ignore(code);
    return false;
  }
  check(code, call, op);
  return true;
}

cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(void* event) { return static_cast<cudaEvent_t>(event); }

}  // namespace

CudaAvailability availability() noexcept {
  int count = 0;
  const cudaError_t code = api().cudaGetDeviceCount(&count);
  ignore(code);
  try {
    if (code != cudaSuccess || count == 0) return {0, describe_unavailable(code)};
    watch_forks();
    std::string problem;
    for (int device = 0; device < count; ++device)
      if (problem = architecture_problem(device); problem.empty()) return {count, {}};
    return {0, problem};
  } catch (...) {  // no memory for the text
    return {};
  }
}

std::string architecture_problem(int device) {
  int major = 0;
  int minor = 0;
  const cudaError_t code = api().cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  ignore(code);
  if (code != cudaSuccess) return {};  // not what is wrong with it
  ignore(api().cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  const int lowest = lowest_architecture();
  if (major * 100 + minor * 10 >= lowest) return {};
  return fmt::format("cuda:{} has compute capability {}.{}, and this Burin was built for {}.{} and later",
                     device, major, minor, lowest / 100, lowest % 100 / 10);
}

bool has_early_kernels(int device) noexcept {
  int major = 0;
  const cudaError_t code = api().cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  ignore(code);
  return code == cudaSuccess && architecture_for(major * 100 + 99) >= kEarlyKernels;
}

std::string model_name(int device) {
  cudaDeviceProp properties;
  BURIN_CUDA("description", cudaGetDeviceProperties, &properties, device);
  return properties.name;
}

int multiprocessor_count(int device) {
  int count = 0;
  BURIN_CUDA("multiprocessor_count", cudaDeviceGetAttribute, &count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

void synchronize_device(int device) {
  const DeviceGuard guard(device, "synchronize");
  BURIN_CUDA("synchronize", cudaDeviceSynchronize);
}

void memory_info(int device, std::size_t* free, std::size_t* total) noexcept try {
  const DeviceGuard guard(device, "memory_info");
  ignore(api().cudaMemGetInfo(free, total));
} catch (...) {  // figures for a message, which then lacks them
}

StreamPriorities stream_priorities(int device) {
  const DeviceGuard guard(device, "stream_priorities");
  StreamPriorities priorities;
  BURIN_CUDA("stream_priorities", cudaDeviceGetStreamPriorityRange, &priorities.least, &priorities.greatest);
  return priorities;
}

int stream_priority(int device, void* stream) {
  const DeviceGuard guard(device, "stream.priority");
  int priority = 0;
  BURIN_CUDA("stream.priority", cudaStreamGetPriority, stream_of(stream), &priority);
  return priority;
}

BesideCapture::BesideCapture() noexcept {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  ignore(api().cudaThreadExchangeStreamCaptureMode(&mode));
  mode_ = mode;
}

BesideCapture::~BesideCapture() {
  auto mode = static_cast<cudaStreamCaptureMode>(mode_);
  ignore(api().cudaThreadExchangeStreamCaptureMode(&mode));
}

void* create_stream(int device, int priority) {
  const auto [least, greatest] = stream_priorities(device);
  const DeviceGuard guard(device, "stream");
  cudaStream_t stream = nullptr;
  BURIN_CUDA("stream", cudaStreamCreateWithPriority, &stream, cudaStreamNonBlocking,
             std::clamp(priority, greatest, least));
  return stream;
}

void destroy_stream(void* stream) noexcept { ignore(api().cudaStreamDestroy(stream_of(stream))); }

bool is_stream_idle(int device, void* stream) {
  const DeviceGuard guard(device, "stream.is_idle");
  return is_finished(usable_api("stream.is_idle").cudaStreamQuery(stream_of(stream)), "cudaStreamQuery",
                     "stream.is_idle");
}

void synchronize_stream(int device, void* stream) {
  const DeviceGuard guard(device, "stream.synchronize");
  BURIN_CUDA("stream.synchronize", cudaStreamSynchronize, stream_of(stream));
}

std::uint64_t capture_id(StreamView stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  BURIN_CUDA("stream", cudaStreamGetCaptureInfo, stream_of(stream.native_handle()), &status, &id, nullptr,
             nullptr, nullptr, nullptr);
  if (status == cudaStreamCaptureStatusNone) return 0;
  return status == cudaStreamCaptureStatusActive ? id : kInvalidCapture;
}

void stream_wait_event(int device, void* stream, void* event) {
  const DeviceGuard guard(device, "stream.wait");
  BURIN_CUDA("stream.wait", cudaStreamWaitEvent, stream_of(stream), event_of(event), cudaEventWaitDefault);
}

void* create_event(int device, bool timing) {
  const DeviceGuard guard(device, "event");
  cudaEvent_t event = nullptr;
  BURIN_CUDA("event", cudaEventCreateWithFlags, &event, timing ? cudaEventDefault : cudaEventDisableTiming);
  return event;
}

void destroy_event(void* event) noexcept { ignore(api().cudaEventDestroy(event_of(event))); }

void record_event(int device, void* event, void* stream) {
  const DeviceGuard guard(device, "event.record");
  BURIN_CUDA("event.record", cudaEventRecord, event_of(event), stream_of(stream));
}

bool is_event_done(int device, void* event) {
  const DeviceGuard guard(device, "event.is_done");
  return is_finished(usable_api("event.is_done").cudaEventQuery(event_of(event)), "cudaEventQuery",
                     "event.is_done");
}

void synchronize_event(int device, void* event) {
  const DeviceGuard guard(device, "event.synchronize");
  BURIN_CUDA("event.synchronize", cudaEventSynchronize, event_of(event));
}

double event_elapsed_ms(int device, void* first, void* later) {
  const DeviceGuard guard(device, "event.elapsed_ms");
  float milliseconds = 0;
  BURIN_CUDA("event.elapsed_ms", cudaEventElapsedTime, &milliseconds, event_of(first), event_of(later));
  return milliseconds;
}

void copy_bytes(StreamView stream, void* dst, const void* src, std::size_t bytes) {
  if (bytes == 0) return;
  const DeviceGuard guard(stream.device().index, "copy");
  BURIN_CUDA("copy", cudaMemcpyAsync, dst, src, bytes, cudaMemcpyDefault, stream_of(stream.native_handle()));
}

}  // namespace burin::cuda
