#pragma once
// Private: what the front (conv2d.cpp) and the backends of conv2d say to each other.

#include <burin/ops/conv2d/conv2d.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace burin {
class ThreadPool;
}

namespace burin::conv2d_impl {

/// A checked call. Tensors are dense, and x, w, residual and y all in `layout`: contiguous means NCHW and
/// w [K][C/g][R][S]; channels_last means NHWC and w [K][R][S][C/g]. y has elements; a product may have no
/// terms.
struct Problem {
  DType dtype = DType::f32;
  Layout layout = Layout::contiguous;
  Shape x, w, y;
  Conv2dParams params;
  bool has_bias = false;
  bool has_residual = false;
  bool allow_tf32 = false;
};

/// Addresses of a call; null where absent. residual may be y.
struct Operands {
  const void* x = nullptr;
  const void* w = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;
  void* y = nullptr;
};

/// How the CPU cuts a call into tasks, each a tile of pixels by all output channels or, if packed, a block of
/// them.
struct CpuPlan {
  enum class Way {
    packed,   // windows are gathered, tile by tile, into panels of `depth` terms that stay in cache
    windows,  // stride 1: windows are read where they lie in a padded copy of x
    direct,   // few output channels a group: row by row
  };
  Way way = Way::packed;
  std::int64_t tile_pixels = 0;
  std::size_t workspace_bytes = 0;
  std::int64_t tile_rows = 0;           // packed: output channels
  std::int64_t depth = 0;               // packed: terms
  std::int64_t workers = 0;             // packed: each with its own part of the workspace,
  std::int64_t worker_floats = 0;       // this much
  std::vector<std::int64_t> offsets{};  // windows: of each term from the window's corner
};

struct CudaPlan;   // conv2d_cuda.h
struct CudnnPlan;  // conv2d_cudnn.cpp

/// All that a call decides before it runs: made from specs alone, immutable, shared by threads.
struct Plan {
  Backend backend = Backend::cpu;
  Problem problem;  // as the backend wants it: f32 on the CPU, perhaps another layout than the caller's
  std::size_t workspace_bytes = 0;
  std::string passed_over;    // why a library did not take the call; empty if one did, or there is none
  std::size_t alignment = 1;  // bytes, of every operand's address
  CpuPlan cpu;
  std::shared_ptr<const CudaPlan> cuda;
  std::shared_ptr<const CudnnPlan> cudnn;
};

/// `problem` in the caller's dtype and layout. Reads the context's device, preference, precision and
/// autotuning; queues nothing unless it measures. Throws UnsupportedError.
Plan prepare(Context& ctx, const Problem& problem);
/// The part of prepare() for a GPU (conv2d_gpu.cpp).
Plan gpu_plan(Context& ctx, const Problem& problem);
/// Launches, and nothing else. Operands are as plan.problem says; workspace holds workspace_bytes.
void run(Context& ctx, const Plan& plan, const Operands& operands, void* workspace);

/// For f32 and contiguous tensors.
CpuPlan cpu_prepare(const Problem& problem, int threads);
void cpu_run(const CpuPlan& plan, const Problem& problem, ThreadPool& threads, const Operands& operands,
             void* workspace);

/// Milliseconds of a launch on scratch operands: the best of a few, after one to warm up.
double time_ms(Context& ctx, const Problem& problem, std::size_t workspace_bytes,
               const std::function<void(const Operands&, void* workspace)>& launch);

/// Bytes that cuDNN's plans suppose every address to be a multiple of.
inline constexpr std::size_t kCudnnAlignment = 16;

/// Why cuDNN cannot serve a call; empty if it can, as far as can be said without asking it.
std::string cudnn_refuses(const Problem& problem);
/// Asks cuDNN for a plan; with `measure`, runs the first candidates and keeps the fastest. Throws
/// UnsupportedError if there is none, LibraryError if cuDNN is missing.
std::shared_ptr<const CudnnPlan> cudnn_prepare(Context& ctx, const Problem& problem, bool measure);
std::size_t workspace_bytes(const CudnnPlan& plan);
void cudnn_run(Context& ctx, const CudnnPlan& plan, const Operands& operands, void* workspace);

}  // namespace burin::conv2d_impl
