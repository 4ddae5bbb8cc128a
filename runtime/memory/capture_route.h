#pragma once
// Private: sends the allocations of one capture to a GraphPool, and puts replays on it in order.

#include <burin/runtime/memory/graph_pool.h>
#include <burin/runtime/stream.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace burin {

/// The memory that a capture was given, to which the replays of its graph write.
struct Footprint {
  struct Range {
    const char* address;
    std::size_t bytes;
  };
  std::vector<Range> ranges;    // by address, apart from each other
  std::uint64_t recording = 0;  // which capture of its GraphPool it was, from 1

  // When the pool was last found free of tensors that a replay would overwrite.
  std::uint64_t checked_recordings = 0;
  std::size_t checked_live_blocks = 0;
};

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
  /// Whether the memory at `data`, which a live tensor begins with, was allocated in this capture.
  bool has_allocated(const void* data) const noexcept;
  /// What the capture was given so far.
  Footprint footprint() const;
  ~CaptureRoute();
  CaptureRoute(const CaptureRoute&) = delete;
  CaptureRoute& operator=(const CaptureRoute&) = delete;

 private:
  GraphPool pool_;
};

/// The turn of one graph to be launched on its GraphPool: graphs that share memory run one after the other on
/// the device, and do not overwrite each other's living tensors.
class ReplayTurn {
 public:
  /// From here to the destructor no other graph of the pool is launched. The stream waits for the last replay
  /// on another one. Throws CaptureError, with nothing queued, if a replay would overwrite a tensor that
  /// another capture into the pool has left alive, or if the last replay was on a stream that is being
  /// captured now, where nothing can be waited for.
  ReplayTurn(const GraphPool& pool, StreamView stream, Footprint& footprint);
  /// Before the stream uses the memory: later turns come after what it queues from here on.
  void taken() noexcept;

 private:
  const GraphPool& pool_;
  StreamView stream_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace burin
