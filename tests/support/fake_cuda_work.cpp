// Copies, fills and kernels of the fake device.

#include <support/fake_cuda_state.h>

#include <algorithm>
#include <cstring>
#include <span>

#include <fmt/format.h>

namespace burin::test {
namespace {

/// What the work uses of the device's and of page-locked memory.
std::vector<FakeAccess> accesses_of(const FakeWork& work) {
  switch (work.kind) {
    case FakeWork::Kind::kernel:
    case FakeWork::Kind::record:
    case FakeWork::Kind::graph: return work.accesses;
    case FakeWork::Kind::fill: return {{work.dst, work.bytes}};
    case FakeWork::Kind::copy:
      if (!work.staged.empty()) return {{work.dst, work.bytes}};
      return {{work.dst, work.bytes}, {work.src, work.bytes}};
  }
  return {};
}

std::string complaint_of(const FakeState& state, const FakeWork& work, std::uint64_t at) {
  for (const FakeAccess& access : accesses_of(work)) {
    std::string complaint = state.complaint(access.data, access.bytes, at);
    if (!complaint.empty()) return complaint;
  }
  return {};
}

void execute(const FakeWork& work) {
  switch (work.kind) {
    case FakeWork::Kind::kernel: work.body(); break;
    case FakeWork::Kind::fill: std::memset(work.dst, work.value, work.bytes); break;
    case FakeWork::Kind::copy:
      std::memmove(work.dst, work.staged.empty() ? work.src : work.staged.data(), work.bytes);
      break;
    case FakeWork::Kind::record:
    case FakeWork::Kind::graph: break;  // the launch of the graph does them
  }
}

cudaError_t copy(FakeState& state, const std::shared_ptr<FakeStream>& stream, void* dst, const void* src,
                 std::size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  if (!dst || !src) return cudaErrorInvalidValue;
  FakeWork work{.kind = FakeWork::Kind::copy,
                .dst = static_cast<std::byte*>(dst),
                .src = static_cast<const std::byte*>(src),
                .bytes = bytes};
  const FakeMemory to = state.kind_of(dst);
  const FakeMemory from = state.kind_of(src);
  if (from == FakeMemory::pageable && !stream->capture) work.staged.assign(work.src, work.src + bytes);
  const bool waits = to == FakeMemory::pageable || (to == FakeMemory::pinned && from != FakeMemory::device);
  const cudaError_t code = state.submit(stream, std::move(work));
  if (code != cudaSuccess || stream->capture || !waits) return code;
  state.run_until(state.end_of(stream));
  return state.lost;
}

cudaError_t launch_registered(FakeState& state, FakeThread& thread, const cudaLaunchConfig_t& config,
                              const void* address, void** arguments) {
  const auto stream = state.find_stream(config.stream, "cudaLaunchKernelExC");
  if (!stream || (!stream->legacy && stream->device != thread.device)) return cudaErrorInvalidResourceHandle;
  FakeWork work;
  if (const cudaError_t code = state.make_kernel_work(address, config, arguments, work); code != cudaSuccess)
    return code;
  return state.submit(stream, std::move(work));
}

}  // namespace

cudaError_t FakeState::make_kernel_work(const void* address, const cudaLaunchConfig_t& config,
                                        void** arguments, FakeWork& work) const {
  const auto kernel = kernels.find(address);
  if (kernel == kernels.end()) return cudaErrorInvalidDeviceFunction;
  const auto call = std::make_shared<FakeKernelCall>();
  call->address = address;
  call->config = config;
  call->config.attrs = nullptr;  // theirs ends with the call
  call->config.numAttrs = 0;
  const std::vector<std::size_t>& sizes = kernel->second.argument_bytes;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto* bytes = static_cast<const std::byte*>(arguments[i]);
    call->arguments.emplace_back(bytes, bytes + sizes[i]);
  }
  for (std::vector<std::byte>& argument : call->arguments) call->pointers.push_back(argument.data());
  work.call = call;
  work.body = [body = kernel->second.body, call] { body(call->config, call->pointers.data()); };
  return cudaSuccess;
}

cudaError_t FakeState::refuse_work(const FakeStream& stream) {
  if (const cudaError_t code = implicit_use(stream, true); code != cudaSuccess) return code;
  return stream.capture && stream.capture->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

cudaError_t FakeState::submit(const std::shared_ptr<FakeStream>& stream, FakeWork work) {
  if (const cudaError_t code = refuse_work(*stream); code != cudaSuccess) return code;
  if (const std::string complaint = complaint_of(*this, work, serial); !complaint.empty()) {
    violation("at the call: " + complaint);
    return cudaErrorInvalidValue;
  }
  if (stream->capture) {
    capture_node(*stream, std::move(work));
    return cudaSuccess;
  }
  push(stream, FakeQueuedWork{std::make_shared<const FakeWork>(std::move(work)), serial});
  return cudaSuccess;
}

void FakeState::run(const FakeQueuedWork& queued) {
  if (std::string complaint = complaint_of(*this, *queued.work, queued.serial); !complaint.empty()) {
    violation("when it ran: " + std::move(complaint));
    lost = cudaErrorIllegalAddress;
    return;
  }
  running_serial = queued.serial;
  execute(*queued.work);
}

cudaError_t FakeCuda::launch(cudaStream_t handle, std::function<void()> body,
                             std::vector<FakeAccess> accesses) {
  return fake_call("launch", [&](FakeState& state, FakeThread&) {
    const auto stream = state.find_stream(handle, "launch");
    if (!stream) return cudaErrorInvalidResourceHandle;
    FakeWork work;
    work.body = std::move(body);
    work.accesses = std::move(accesses);
    return state.submit(stream, std::move(work));
  });
}

void add_fake_work(cuda::CudaApi& table) {
  table.cudaMemcpyAsync = [](void* dst, const void* src, std::size_t bytes, cudaMemcpyKind,
                             cudaStream_t handle) {
    return fake_call("cudaMemcpyAsync", [&](FakeState& state, FakeThread&) {
      const auto stream = state.find_stream(handle, "cudaMemcpyAsync");
      return stream ? copy(state, stream, dst, src, bytes) : cudaErrorInvalidResourceHandle;
    });
  };
  table.cudaMemsetAsync = [](void* dst, int value, std::size_t bytes, cudaStream_t handle) {
    return fake_call("cudaMemsetAsync", [&](FakeState& state, FakeThread&) {
      const auto stream = state.find_stream(handle, "cudaMemsetAsync");
      if (!stream) return cudaErrorInvalidResourceHandle;
      if (bytes == 0) return cudaSuccess;
      const FakeMemory to = state.kind_of(dst);
      if (to == FakeMemory::pageable) return cudaErrorInvalidValue;
      FakeWork work{
          .kind = FakeWork::Kind::fill, .dst = static_cast<std::byte*>(dst), .bytes = bytes, .value = value};
      return state.submit(stream, std::move(work));
    });
  };
  table.cudaLaunchKernelExC = [](const cudaLaunchConfig_t* config, const void* address, void** arguments) {
    return fake_call("cudaLaunchKernelExC", [&](FakeState& state, FakeThread& thread) {
      return config ? launch_registered(state, thread, *config, address, arguments) : cudaErrorInvalidValue;
    });
  };
  table.cudaFuncGetParamInfo = [](const void* address, std::size_t index, std::size_t* offset,
                                  std::size_t* bytes) {
    return fake_call("cudaFuncGetParamInfo", [&](FakeState& state, FakeThread&) {
      const auto kernel = state.kernels.find(address);
      if (kernel == state.kernels.end()) return cudaErrorInvalidDeviceFunction;
      const std::vector<std::size_t>& sizes = kernel->second.argument_bytes;
      if (index >= sizes.size()) return cudaErrorInvalidValue;
      *offset = 0;  // each argument at a multiple of its size, which is a power of two
      for (std::size_t i = 0; i <= index; ++i) {
        *offset = (*offset + sizes[i] - 1) / sizes[i] * sizes[i];
        *bytes = sizes[i];
        if (i < index) *offset += sizes[i];
      }
      return cudaSuccess;
    });
  };
  table.cudaFuncSetAttribute = [](const void* address, cudaFuncAttribute, int) {
    return fake_call("cudaFuncSetAttribute", [&](FakeState& state, FakeThread&) {
      return state.kernels.contains(address) ? cudaSuccess : cudaErrorInvalidDeviceFunction;
    });
  };
}

}  // namespace burin::test
