#pragma once
// Private: sends the allocations of one capture to a GraphPool.

#include <burin/runtime/memory/graph_pool.h>

#include <cstdint>

namespace burin {

/// Lives from before cudaStreamBeginCapture until after cudaStreamEndCapture (or the capture's invalidation).
/// In that time the CachingPool gives nothing back to the driver, queries no event, and serves requests on
/// any stream of the capture, known by its id, from the GraphPool.
class CaptureRoute {
 public:
  /// Waits on the host for work that uses the pool's free memory. Throws CaptureError if another capture is
  /// being recorded to the pool.
  explicit CaptureRoute(GraphPool pool);
  /// After cudaStreamBeginCapture: the id of the capture.
  void bind(std::uint64_t capture_id);
  ~CaptureRoute();
  CaptureRoute(const CaptureRoute&) = delete;
  CaptureRoute& operator=(const CaptureRoute&) = delete;

 private:
  GraphPool pool_;
};

}  // namespace burin
