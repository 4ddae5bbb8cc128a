#pragma once
// Private: the hand-written CUDA convolution.

#include <burin/ops/conv2d/conv2d_impl.h>
#include <burin/runtime/stream.h>

namespace burin::conv2d_impl {

/// The kernel chosen for a problem, and its tile sizes.
struct CudaPlan {
  Problem problem;
  std::size_t workspace_bytes = 0;
};

CudaPlan cuda_prepare(const Problem& problem, int multiprocessors);
std::size_t workspace_bytes(const CudaPlan& plan);
void cuda_run(const CudaPlan& plan, StreamView stream, const Operands& operands, void* workspace);

}  // namespace burin::conv2d_impl
