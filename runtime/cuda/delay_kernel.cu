#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/cuda/launch.cuh>

namespace burin::cuda {
namespace {

__device__ unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void delay_kernel(unsigned long long duration) {
  const unsigned long long begin = nanoseconds();
  while (nanoseconds() - begin < duration) __nanosleep(500);
}

}  // namespace

void delay(StreamView stream, unsigned microseconds) {
  launch("delay", delay_kernel, {.grid = dim3(1), .block = dim3(1)}, stream, 1000ull * microseconds);
}

}  // namespace burin::cuda
