#pragma once
// Private: how a kernel is launched, for host code. Kernels themselves use launch.cuh.

#include <burin/runtime/stream.h>

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

namespace burin::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  // dynamic shared memory of a block
  /// The kernel calls wait_for_previous() (launch.cuh), and so may be set up while the one before it in the
  /// stream still ends: CUDA's programmatic dependent launch. Where the GPU cannot, nothing changes.
  bool starts_early = false;
};

/// Queues `kernel` on the stream. A grid with an extent of 0 launches nothing. Throws UnsupportedError for a
/// shape outside CUDA's limits, CudaError (with `op`) if the launch is refused. Dynamic shared memory above
/// the default limit of 48 KiB is allowed for the kernel first.
void launch_untyped(const char* op, const void* kernel, const LaunchShape& shape, StreamView stream,
                    void** arguments);

/// Whether an address allows accesses of 16 bytes.
inline bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

/// Blocks of `per_block` items that `count` items need, for grid.x. Throws UnsupportedError above 2^31 - 1.
unsigned blocks_for(const char* op, std::int64_t count, std::int64_t per_block);

/// For kernels that loop with for_each_index and touch no memory before it: 256 threads a block, and blocks
/// enough for `count` threads or to fill any GPU a few times over, started early.
LaunchShape grid_stride_shape(std::int64_t count);

}  // namespace burin::cuda
