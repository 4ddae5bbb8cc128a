#include <burin/runtime/device.h>
#include <support/fake_cuda_state.h>

#include <cstdlib>
#include <cstring>
#include <utility>

namespace burin::test {

FakeState*& FakeState::in_force() {
  static FakeState* state = nullptr;  // the table holds plain functions, which find the device here
  return state;
}

void FakeState::violation(std::string text) { violations.push_back(std::move(text)); }

cudaError_t FakeState::refusal(std::string_view function) {
  ++calls;
  ++call_counts[function];
  if (unloaded) return cudaErrorCudartUnloading;
  if (lost != cudaSuccess) return lost;
  if (fail_countdown == 0 || (!fail_function.empty() && fail_function != function)) return cudaSuccess;
  if (fail_countdown > 1) {
    --fail_countdown;
    return cudaSuccess;
  }
  if (!fail_later) fail_countdown = 0;
  failed = true;
  return fail_code;
}

std::uintptr_t FakeState::new_handle() {
  if (free_handles.empty()) return next_handle += 0x10;
  const std::uintptr_t handle = free_handles.back();
  free_handles.pop_back();
  return handle;
}

void FakeState::recycle(std::uintptr_t handle) {
  if (options.recycle_handles) free_handles.push_back(handle);
}

namespace {

constexpr int kMultiprocessors = 4;
constexpr int kLargestSharedBytes = 232448;

cudaError_t attribute(const FakeState& state, int* value, cudaDeviceAttr which, int device) {
  if (device < 0 || device >= state.options.devices) return cudaErrorInvalidDevice;
  switch (which) {
    case cudaDevAttrMultiProcessorCount: *value = kMultiprocessors; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = kLargestSharedBytes; break;
    default: *value = 0;
  }
  return cudaSuccess;
}

cudaError_t properties(const FakeState& state, cudaDeviceProp* out, int device) {
  if (device < 0 || device >= state.options.devices) return cudaErrorInvalidDevice;
  *out = {};
  std::strcpy(out->name, "fake device");
  out->totalGlobalMem = state.options.total_bytes;
  out->multiProcessorCount = kMultiprocessors;
  out->major = 9;
  out->sharedMemPerBlockOptin = kLargestSharedBytes;
  return cudaSuccess;
}

void add_devices(cuda::CudaApi& table) {
  table.cudaGetDeviceCount = [](int* count) {
    return fake_call("cudaGetDeviceCount", [&](FakeState& state, FakeThread&) {
      *count = state.options.devices;
      return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
    });
  };
  table.cudaDriverGetVersion = [](int* version) {
    return fake_call("cudaDriverGetVersion", [&](FakeState&, FakeThread&) {
      *version = CUDART_VERSION;
      return cudaSuccess;
    });
  };
  table.cudaRuntimeGetVersion = [](int* version) {
    return fake_call("cudaRuntimeGetVersion", [&](FakeState&, FakeThread&) {
      *version = CUDART_VERSION;
      return cudaSuccess;
    });
  };
  table.cudaGetDeviceProperties = [](cudaDeviceProp* out, int device) {
    return fake_call("cudaGetDeviceProperties",
                     [&](FakeState& state, FakeThread&) { return properties(state, out, device); });
  };
  table.cudaDeviceGetAttribute = [](int* value, cudaDeviceAttr which, int device) {
    return fake_call("cudaDeviceGetAttribute",
                     [&](FakeState& state, FakeThread&) { return attribute(state, value, which, device); });
  };
  table.cudaGetDevice = [](int* device) {
    return fake_call("cudaGetDevice", [&](FakeState&, FakeThread& thread) {
      *device = thread.device;
      return cudaSuccess;
    });
  };
  table.cudaSetDevice = [](int device) {
    return fake_call("cudaSetDevice", [&](FakeState& state, FakeThread& thread) {
      if (device < 0 || device >= state.options.devices) return cudaErrorInvalidDevice;
      thread.device = device;
      return cudaSuccess;
    });
  };
  table.cudaGetLastError = [] {
    FakeState& state = *FakeState::in_force();
    const std::lock_guard lock(state.mutex);
    if (state.unloaded) return cudaErrorCudartUnloading;
    const cudaError_t last = std::exchange(state.thread().last_error, cudaSuccess);
    return state.lost == cudaSuccess ? last : state.lost;
  };
}

}  // namespace

bool takes_fake_cuda() { return std::getenv("BURIN_TEST_FAKE_CUDA") || cuda_availability().count == 0; }

FakeCuda::FakeCuda(const FakeCudaOptions& options)
    : state_(std::make_unique<FakeState>(options)), table_(cuda::api()) {  // names and texts of errors stay
  FakeState::in_force() = state_.get();
  add_devices(table_);
  add_fake_streams(table_);
  add_fake_events(table_);
  add_fake_work(table_);
  add_fake_memory(table_);
  add_fake_virtual_memory(table_);
  add_fake_capture(table_);
  add_fake_graph(table_);
  add_fake_graph_exec(table_);
  scope_ = std::make_unique<cuda::ScopedCudaApi>(table_);
}

FakeCuda::~FakeCuda() {
  scope_.reset();
  FakeState::in_force() = nullptr;
}

std::vector<std::string> FakeCuda::violations() const {
  const std::lock_guard lock(state_->mutex);
  return state_->violations;
}

FakeCuda::Live FakeCuda::live() const {
  const std::lock_guard lock(state_->mutex);
  Live live{.streams = state_->streams.size(),
            .events = state_->events.size(),
            .graphs = state_->graphs.size() + state_->execs.size(),
            .device_bytes = 0,
            .pinned_bytes = state_->pinned_bytes,
            .reserved_address_bytes = 0,
            .handles = state_->physical.size()};
  for (const std::size_t bytes : state_->used_bytes) live.device_bytes += bytes;
  for (const auto& [address, reservation] : state_->reservations)
    if (reservation.live) live.reserved_address_bytes += reservation.bytes;
  return live;
}

std::size_t FakeCuda::pending() const {
  const std::lock_guard lock(state_->mutex);
  return state_->pending;
}

cudaError_t FakeCuda::launch(StreamView stream, std::function<void()> body,
                             std::vector<FakeAccess> accesses) {
  return launch(static_cast<cudaStream_t>(stream.native_handle()), std::move(body), std::move(accesses));
}

void FakeCuda::set_kernel(const void* address, std::vector<std::size_t> argument_bytes, Kernel body) {
  const std::lock_guard lock(state_->mutex);
  state_->kernels[address] = {std::move(argument_bytes), std::move(body)};
}

bool FakeCuda::touch(const void* data, std::size_t bytes) {
  std::string complaint = state_->complaint(data, bytes, state_->running_serial);
  if (complaint.empty()) return true;
  state_->violation("kernel: " + std::move(complaint));
  return false;
}

void FakeCuda::fail_call(std::uint64_t n, cudaError_t code, bool and_all_later, std::string_view function) {
  const std::lock_guard lock(state_->mutex);
  state_->fail_countdown = n;
  state_->fail_code = code;
  state_->fail_later = and_all_later;
  state_->fail_function = function;
  state_->failed = false;
}

bool FakeCuda::has_failed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failed;
}

std::uint64_t FakeCuda::calls() const {
  const std::lock_guard lock(state_->mutex);
  return state_->calls;
}

std::uint64_t FakeCuda::call_count(std::string_view function) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->call_counts.find(function);
  return found == state_->call_counts.end() ? 0 : found->second;
}

void FakeCuda::unload() {
  const std::lock_guard lock(state_->mutex);
  state_->unloaded = true;
}

}  // namespace burin::test
