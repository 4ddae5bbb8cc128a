#pragma once

#include <burin/runtime/event.h>
#include <burin/runtime/export.h>
#include <burin/runtime/stream.h>

#include <memory>
#include <utility>

namespace burin {

/// A copy that was queued by copy_async or to_async. Copies of a Transfer are the same one; it may be
/// discarded, as the buffers stay safe without it. On the CPU, and default-made, it is done.
class BURIN_API Transfer {
 public:
  Transfer() = default;
  /// For those who queue copies: `done` was recorded after the copy.
  explicit Transfer(std::shared_ptr<const Event> done) : done_(std::move(done)) {}

  /// True if the copy has finished. Throws CudaError if it failed.
  bool is_done() const { return !done_ || done_->is_done(); }
  /// Blocks the calling thread until the copy has finished. Throws CudaError if it failed.
  void wait() const {
    if (done_) done_->synchronize();
  }
  /// Work queued on `other` after this call runs after the copy; does not block the host. The stream that the
  /// copy was queued on is in order already.
  void then(StreamView other) const {
    if (done_) other.wait(*done_);
  }

 private:
  std::shared_ptr<const Event> done_;
};

}  // namespace burin
