#pragma once
// Private: the hand-written CUDA convolution.

#include <burin/ops/conv2d/conv2d_cuda_windows.h>
#include <burin/ops/conv2d/conv2d_impl.h>
#include <burin/ops/gemm/tile_choice.h>
#include <burin/runtime/stream.h>

#include <cstddef>
#include <cstdint>

namespace burin::conv2d_impl {

/// The kernel chosen for a problem.
struct CudaPlan {
  enum class Way {
    tiles,    // an implicit product
    windows,  // 3 x 3 filters over small images
    direct,   // a thread a chunk of y, for few terms
  };
  Problem problem;
  Way way = Way::tiles;
  gemm::TileChoice tile;               // tiles: of the product
  WindowsPlan windows;                 // windows
  std::int64_t images_per_launch = 0;  // tiles, direct
  std::size_t workspace_bytes = 0;
};

/// Throws UnsupportedError for a single image whose extents exceed 2^30.
CudaPlan cuda_prepare(const Problem& problem, int multiprocessors);
inline std::size_t workspace_bytes(const CudaPlan& plan) { return plan.workspace_bytes; }
/// Launches; nothing else. `workspace` has workspace_bytes(plan).
void cuda_run(const CudaPlan& plan, StreamView stream, const Operands& operands, void* workspace);

}  // namespace burin::conv2d_impl
