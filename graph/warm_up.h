#pragma once
// Private: the eager runs before a capture.

#include <burin/graph/capture.h>
#include <burin/graph/capture_memory.h>
#include <burin/runtime/memory/caching_pool.h>
#include <burin/runtime/op_observer.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace burin::detail {

/// Runs a forward pass until a run does nothing that a capture forbids or that would make it differ from the
/// next.
class WarmUp final : public OpObserver {
 public:
  WarmUp(Context& ctx, const Forward& forward, std::span<const Tensor> inputs);

  ~WarmUp() override;  // generators are where they were
  WarmUp(const WarmUp&) = delete;
  WarmUp& operator=(const WarmUp&) = delete;

  /// Returns the number of runs. Throws CaptureError with the operator and the call at fault if the `most`-th
  /// run is not quiet yet, and what the pass throws.
  int run(int most);

  // Of the last run:
  struct Output {
    TensorSpec spec;
    Layout layout = Layout::contiguous;
    std::optional<std::size_t> request;  // the allocation that it lies in, by its place in the run
    std::size_t buffer_bytes = 0;
  };
  const std::vector<Output>& outputs() const noexcept { return outputs_; }
  std::size_t peak_bytes() const noexcept { return peak_bytes_; }

  void op_begins(const OpCall& call) override;
  void op_ends(const OpCall& call, bool failed) noexcept override;
  void kernel_queued(const char* op, const void* kernel) override;
  void host_waits(const char* call) override;
  void draws(const Generator& generator) override;

 private:
  struct Counts {
    std::uint64_t plans = 0;
    int handles = 0;
    std::size_t reserved_bytes = 0;
    bool operator==(const Counts&) const = default;
  };
  Counts count() const noexcept;
  void compare(const Counts& before, const char* op) noexcept;
  void blame(const char* op, const std::string& what);
  void run_once();

  Context& ctx_;
  const Forward& forward_;
  std::span<const Tensor> inputs_;
  const CachingPool* pool_;  // that the memory stands upon, if any
  std::unordered_set<const void*> kernels_;
  std::vector<const char*> open_;                         // operators
  std::vector<Counts> before_;                            // at the beginning of each
  std::string fault_;                                     // of the run: the first
  std::vector<std::pair<Generator, Philox>> generators_;  // that the pass draws from, and where they were
  bool waited_ = false;                                   // the fault is a wait, which another run repeats
  std::vector<Output> outputs_;
  std::size_t peak_bytes_ = 0;
};

/// The CachingPool that a resource is or stands upon; null if there is none.
const CachingPool* caching_pool_below(const MemoryResource& memory);

}  // namespace burin::detail
