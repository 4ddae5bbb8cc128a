#pragma once
// Private: how captures, checks and profiles learn which operators run on a stream.

#include <burin/runtime/random.h>
#include <burin/runtime/stream.h>
#include <burin/runtime/tensor.h>

#include <cstdint>
#include <memory>
#include <span>

namespace burin {

class Context;

/// One call of an operator or of a copy, while it runs. Absent inputs are undefined.
struct OpCall {
  Context& ctx;
  const char* op;
  std::span<const Tensor* const> inputs;
  const Tensor& output;
};

/// Told what happens on one stream, by the thread that makes the calls.
class OpObserver {
 public:
  virtual ~OpObserver() = default;

  /// Calls may nest: an operator that copies an input into another form. May throw, which fails the call.
  virtual void op_begins(const OpCall&) {}
  /// `failed`: by an exception, which is on its way.
  virtual void op_ends(const OpCall&, bool /*failed*/) noexcept {}
  /// A kernel of Burin's own was queued, by the operator named.
  virtual void kernel_queued(const char* /*op*/, const void* /*kernel*/) {}
  /// The host is about to wait for the stream, or asks whether it is done: `call` of the CUDA runtime.
  virtual void host_waits(const char* /*call*/) {}

  /// For a kernel that is recorded, to run many times with fresh random numbers: where it reads, when it
  /// runs, the seed and the offset that the generator has for this run, and how far past that offset it
  /// starts.
  struct RandomSource {
    const Philox* state = nullptr;  // on the device; null: nothing is recorded
    std::uint64_t drawn = 0;
  };
  /// An eager draw is about to advance the generator.
  virtual void draws(const Generator& /*generator*/) {}
  virtual RandomSource draw(const Generator& /*generator*/, std::uint64_t /*count*/) { return {}; }
};

/// Makes `observer` the stream's, for a scope; the one before it is not told meanwhile. It must outlive the
/// scope.
class ObserverScope {
 public:
  ObserverScope(StreamView stream, OpObserver* observer);
  ~ObserverScope();
  ObserverScope(const ObserverScope&) = delete;
  ObserverScope& operator=(const ObserverScope&) = delete;

 private:
  std::shared_ptr<detail::StreamState> stream_;
  OpObserver* outer_;
};

}  // namespace burin
