#pragma once
// A CUDA device made of host memory, for tests on machines without a GPU. It runs queued work late and in any
// order that CUDA allows, refuses what CUDA refuses, and counts what is still held, so that a missing wait, a
// call that a capture forbids, or a leak shows. What it refuses, and with which code, was read off an H200.

#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/stream.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace burin::test {

struct FakeState;

/// Whether tests that run on either take the fake device: there is no GPU, or BURIN_TEST_FAKE_CUDA is set.
bool takes_fake_cuda();

struct FakeCudaOptions {
  int devices = 2;
  std::size_t total_bytes = std::size_t{1} << 30;  // of each device; host memory is taken as it is written
  bool virtual_memory = true;                      // else cuMem... returns cudaErrorNotSupported
  std::size_t granularity = std::size_t{2} << 20;  // of virtual memory
  std::uint64_t seed = 1;                          // of the order in which work runs
  bool recycle_handles = false;  // a new stream or event takes the handle that was destroyed last
};

/// Memory that a kernel uses.
struct FakeAccess {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

/// In force from construction to destruction; one at a time. Thread-safe.
///
/// Work is only queued by the call. It runs when a call waits for it, now and then when a call waits for or
/// asks about something else, and when more than some thousands of operations are pending: never in an order
/// that streams and events forbid, and otherwise in one drawn from the seed.
///
/// The launch of a graph is one such operation, whose nodes run one at a time, between work of other streams.
///
/// What CUDA leaves undefined is a violation: the use of destroyed handles and freed memory, frees of what is
/// not there, work that touches memory which was freed or unmapped after it was queued or captured. After
/// such work every call returns cudaErrorIllegalAddress, as with CUDA.
class FakeCuda {
 public:
  explicit FakeCuda(const FakeCudaOptions& options = {});
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  std::vector<std::string> violations() const;

  struct Live {
    std::size_t streams = 0;
    std::size_t events = 0;
    std::size_t graphs = 0;  // and executable graphs
    std::size_t device_bytes = 0;
    std::size_t pinned_bytes = 0;
    std::size_t reserved_address_bytes = 0;
    std::size_t handles = 0;  // of physical memory (cuMemCreate) that are not released
    bool operator==(const Live&) const = default;
  };
  Live live() const;
  /// Operations that are queued and have not run.
  std::size_t pending() const;

  /// Queues `body` as a kernel, or makes it a node of the stream's capture. It must not call CUDA or throw.
  cudaError_t launch(cudaStream_t stream, std::function<void()> body, std::vector<FakeAccess> accesses = {});
  cudaError_t launch(StreamView stream, std::function<void()> body, std::vector<FakeAccess> accesses = {});

  using Kernel = std::function<void(const cudaLaunchConfig_t&, void** arguments)>;
  /// What cudaLaunchKernelExC of this address does. The arguments, of these sizes, are copied at the launch.
  void set_kernel(const void* address, std::vector<std::size_t> argument_bytes, Kernel body);
  /// In the body of a kernel: whether memory may be used; a violation if not.
  bool touch(const void* data, std::size_t bytes);

  /// The n-th call from now (from 1) of any function, or of the one named, returns `code`, and so do all
  /// later ones if `and_all_later`. Calls that release something, or end a capture, do so all the same.
  /// Replaces what was asked for before; n = 0 ends it.
  void fail_call(std::uint64_t n, cudaError_t code, bool and_all_later = false,
                 std::string_view function = {});
  /// Whether a call has failed since fail_call.
  bool has_failed() const;
  /// Calls of functions that can fail, since construction.
  std::uint64_t calls() const;
  std::uint64_t call_count(std::string_view function) const;
  /// From now on every call returns cudaErrorCudartUnloading, as while the process exits.
  void unload();

 private:
  std::unique_ptr<FakeState> state_;
  cuda::CudaApi table_;
  std::unique_ptr<cuda::ScopedCudaApi> scope_;
};

}  // namespace burin::test
