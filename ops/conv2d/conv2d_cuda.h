#pragma once
// Private: the hand-written CUDA convolution.

#include <burin/ops/conv2d/conv2d_impl.h>
#include <burin/ops/gemm/tile_choice.h>
#include <burin/runtime/stream.h>

#include <cstddef>
#include <cstdint>

namespace burin::conv2d_impl {

/// The kernel chosen for a problem.
struct CudaPlan {
  Problem problem;
  bool direct = false;    // a thread a chunk of y, for few terms; else an implicit product by tiles
  gemm::TileChoice tile;  // of the product
  std::int64_t images_per_launch = 0;
  std::size_t workspace_bytes = 0;
};

/// Throws UnsupportedError for a single image whose extents exceed 2^30.
CudaPlan cuda_prepare(const Problem& problem, int multiprocessors);
inline std::size_t workspace_bytes(const CudaPlan& plan) { return plan.workspace_bytes; }
/// Launches; nothing else. `workspace` has workspace_bytes(plan).
void cuda_run(const CudaPlan& plan, StreamView stream, const Operands& operands, void* workspace);

}  // namespace burin::conv2d_impl
