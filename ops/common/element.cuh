#pragma once
// Private: element types inside kernels, by the hardware's own conversions.

#include <burin/runtime/float16.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace burin {

/// An element as the type that kernels compute in: f16 and bf16 become float, others stay.
template <class T>
__device__ inline T widened(T x) {
  return x;
}
__device__ inline float widened(f16 x) { return __half2float(__half(__half_raw{x.bits})); }
__device__ inline float widened(bf16 x) { return static_cast<float>(x); }

/// And back, rounded to nearest even.
template <class T, class From>
__device__ inline T narrowed(From x) {
  return static_cast<T>(x);
}
template <>
__device__ inline f16 narrowed<f16, float>(float x) {
  f16 y;
  y.bits = __half_as_ushort(__float2half_rn(x));
  return y;
}
template <>
__device__ inline bf16 narrowed<bf16, float>(float x) {
  bf16 y;
  y.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
  return y;
}

}  // namespace burin
