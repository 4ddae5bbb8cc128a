#pragma once
// Private.

#include <burin/runtime/cuda/cuda_api.h>

namespace burin::cuda {

/// Lets the calling thread allocate while it captures a stream, for a scope: what it calls must not touch the
/// capture. CUDA refuses cudaMalloc and its like otherwise, and ends the capture.
class RelaxedCapture {
 public:
  RelaxedCapture() { ignore(api().cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~RelaxedCapture() { ignore(api().cudaThreadExchangeStreamCaptureMode(&mode_)); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then the one to restore
};

}  // namespace burin::cuda
