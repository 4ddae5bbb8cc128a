#pragma once

#include <burin/runtime/backend.h>
#include <burin/runtime/device.h>
#include <burin/runtime/export.h>
#include <burin/runtime/memory/memory_resource.h>
#include <burin/runtime/stream.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

namespace burin {

class PlanCache;
class ThreadPool;
namespace detail {
class Libraries;
}

/// What precision f32 operators may trade for speed. f16 and bf16 operators always accumulate in f32.
struct Precision {
  /// CUDA only: products of f32 tensors may round their inputs to 10 bits of mantissa.
  bool allow_tf32 = false;
};

struct ContextOptions {
  int threads = 0;  // CPU threads, the caller's included; 0: one per core this process may use
  std::shared_ptr<ThreadPool> pool{};        // shared between contexts; made from `threads` if absent
  std::shared_ptr<MemoryResource> memory{};  // of the context's device; a CachingPool of its own if absent
  std::shared_ptr<MemoryResource> pinned{};  // page-locked host memory; a pinned pool of its own if absent
  std::optional<Stream> stream{};            // a stream of its own if absent
  Precision precision{};
  bool autotune = false;  // measure the candidates of each new shape once, instead of trusting heuristics
  std::size_t plan_capacity = 512;               // plans kept, least recently used dropped first
  std::function<void(std::string_view)> warn{};  // takes warnings, one line each; absent: written to stderr
};

/// Everything an operator needs besides its tensors, and the first argument of each: device, stream, memory,
/// library handles, plans, precision. Cheap; made and destroyed by scope; used by one thread at a time (make
/// one a thread, and share memory and pool through the options). Tensors may outlive the context they came
/// from.
class BURIN_API Context {
 public:
  /// Throws DeviceError, with the reason, if the device cannot be used, or if an option is of another device;
  /// ShapeError for a negative number of threads.
  explicit Context(Device device = Device::cpu(), ContextOptions options = {});
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  Device device() const noexcept;
  StreamView stream() const noexcept;
  const std::shared_ptr<MemoryResource>& memory() const noexcept;
  /// Page-locked host memory, for asynchronous copies; made when first asked for. Throws DeviceError where
  /// CUDA cannot be used.
  const std::shared_ptr<MemoryResource>& pinned();
  const Precision& precision() const noexcept;
  void set_precision(Precision precision) noexcept;
  bool autotune() const noexcept;
  void set_autotune(bool on) noexcept;

  /// Operators that have this backend use it, and throw UnsupportedError for what it cannot do; those that do
  /// not have it choose as usual. `automatic` ends the preference. Throws UnsupportedError if the backend is
  /// not of this device or not built.
  void prefer(Backend backend);
  Backend preferred() const noexcept;

  /// Waits until everything queued on the context's stream has finished. Throws CudaError.
  void synchronize() const { stream().synchronize(); }

  /// Tells the user something that went otherwise than asked, through ContextOptions::warn.
  void warn(std::string_view message) const;

  // For operators.
  /// Of the CPU, in whose order the context's host tensors are given back.
  StreamView host_stream();
  ThreadPool& threads();
  PlanCache& plans();
  detail::Libraries& libraries();
  /// Library handles made so far.
  int library_handles() const noexcept;

  // For captures.
  /// Later tensors come from `memory`, of the same device. Returns what it replaces.
  std::shared_ptr<MemoryResource> exchange_memory(std::shared_ptr<MemoryResource> memory) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace burin
