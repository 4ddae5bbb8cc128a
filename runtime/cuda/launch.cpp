#include <burin/runtime/check.h>
#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/cuda/device_guard.h>
#include <burin/runtime/cuda/launch.h>
#include <burin/runtime/divide_up.h>
#include <burin/runtime/op_observer.h>
#include <burin/runtime/stream_state.h>

#include <algorithm>

namespace burin::cuda {
namespace {

constexpr std::size_t kDefaultSharedBytes = 48 * 1024;
constexpr std::int64_t kLargestGridX = 0x7FFFFFFF;
constexpr unsigned kLargestGridYZ = 65535;
constexpr unsigned kLargestBlock = 1024;

void check_shape(const char* op, const LaunchShape& shape) {
  const dim3 grid = shape.grid, block = shape.block;
  BURIN_CHECK(grid.x <= kLargestGridX && grid.y <= kLargestGridYZ && grid.z <= kLargestGridYZ,
              UnsupportedError, "{}: a grid of {} x {} x {} blocks exceeds CUDA's 2147483647 x 65535 x 65535",
              op, grid.x, grid.y, grid.z);
  const auto threads = std::uint64_t{block.x} * block.y * block.z;
  BURIN_CHECK(threads >= 1 && threads <= kLargestBlock, UnsupportedError,
              "{}: a block of {} x {} x {} threads is outside CUDA's 1 to 1024", op, block.x, block.y,
              block.z);
}

}  // namespace

void launch_untyped(const char* op, const void* kernel, const LaunchShape& shape, StreamView stream,
                    void** arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  check_shape(op, shape);
  const DeviceGuard guard(stream.device().index, op);
  if (shape.shared_bytes > kDefaultSharedBytes)
    BURIN_CUDA(op, cudaFuncSetAttribute, kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
               static_cast<int>(shape.shared_bytes));
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.native_handle());
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  if (shape.starts_early && stream.state().has_early_kernels) {
    config.attrs = &early;
    config.numAttrs = 1;
  }
  BURIN_CUDA(op, cudaLaunchKernelExC, &config, kernel, arguments);
  if (OpObserver* observer = stream.state().observer()) observer->kernel_queued(op, kernel);
}

unsigned blocks_for(const char* op, std::int64_t count, std::int64_t per_block) {
  const std::int64_t blocks = divide_up(count, per_block);
  BURIN_CHECK(blocks <= kLargestGridX, UnsupportedError, "{}: {} blocks exceed CUDA's 2147483647", op,
              blocks);
  return static_cast<unsigned>(blocks);
}

LaunchShape grid_stride_shape(std::int64_t count) {
  constexpr std::int64_t kThreads = 256;
  constexpr std::int64_t kMostBlocks = 1 << 14;
  const std::int64_t blocks = std::min(divide_up(count, kThreads), kMostBlocks);
  return {.grid = dim3(static_cast<unsigned>(blocks)),
          .block = dim3(static_cast<unsigned>(kThreads)),
          .starts_early = true};
}

}  // namespace burin::cuda
