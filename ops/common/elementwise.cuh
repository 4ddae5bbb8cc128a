#pragma once
// Private: the kernel that computes each element of y from the same element of its inputs, all of one type,
// whatever their strides.

#include <burin/runtime/context.h>
#include <burin/runtime/cuda/launch.cuh>
#include <burin/runtime/cuda/strided_device.cuh>
#include <burin/runtime/strided.h>

#include <cstdint>
#include <cstring>

namespace burin::ops {

template <class T, int kInputs>
struct ElementwiseData {
  T* y;
  const T* inputs[kInputs];
};

/// 16 bytes at once; the address must be a multiple of 16.
template <class T, int kVector>
__device__ void load_vector(T (&values)[kVector], const T* data) {
  static_assert(sizeof values == sizeof(uint4));
  const uint4 bytes = *reinterpret_cast<const uint4*>(data);
  memcpy(values, &bytes, sizeof bytes);
}
template <class T, int kVector>
__device__ void store_vector(T* data, const T (&values)[kVector]) {
  static_assert(sizeof values == sizeof(uint4));
  uint4 bytes;
  memcpy(&bytes, values, sizeof bytes);
  *reinterpret_cast<uint4*>(data) = bytes;
}

/// Operands of `loop`: y, then the inputs. A thread takes kVector elements of an innermost row at a time;
/// with kVector > 1 the loop is as can_vectorise demands. op(y, inputs) works on arrays of kVector values. y
/// may be an input.
template <int kVector, class T, int kInputs, class Op>
__global__ void elementwise_kernel(const Op op, const ElementwiseData<T, kInputs> data,
                                   const __grid_constant__ StridedLoop<kInputs + 1> loop) {
  const int inner = loop.rank - 1;
  cuda::for_each_index((loop.count + kVector - 1) / kVector, [&](std::int64_t i) {
    const std::int64_t first = i * kVector;
    const cuda::Offsets<kInputs + 1> offsets = cuda::offsets_of(loop, first);
    T y[kVector];
    T inputs[kInputs][kVector];
    const std::int64_t left = loop.count - first;  // below kVector only at the end of a loop of one axis
    for (int k = 0; k < kInputs; ++k) {
      const T* from = data.inputs[k] + offsets.of[k + 1];
      const std::int64_t step = loop.strides[k + 1][inner];
      if constexpr (kVector > 1) {
        if (step == 1 && left >= kVector) {
          load_vector(inputs[k], from);
          continue;
        }
      }
      for (int v = 0; v < kVector; ++v)
        if (v < left) inputs[k][v] = from[v * step];
    }
    op(y, inputs);
    T* to = data.y + offsets.of[0];
    if constexpr (kVector > 1) {
      if (left >= kVector) return store_vector(to, y);
    }
    for (int v = 0; v < kVector; ++v)
      if (v < left) to[v] = y[v];
  });
}

/// Every operand with a unit step along the innermost axis can be read 16 bytes at a time wherever a group of
/// kVector elements begins, and the others repeat one element along it.
template <int kVector, class T, int kInputs>
bool can_vectorise(const ElementwiseData<T, kInputs>& data, const StridedLoop<kInputs + 1>& loop) {
  const int inner = loop.rank - 1;
  if (loop.strides[0][inner] != 1 || (loop.rank > 1 && loop.extents[inner] % kVector != 0)) return false;
  for (int k = 0; k <= kInputs; ++k) {
    if (loop.strides[k][inner] == 0) continue;
    if (loop.strides[k][inner] != 1) return false;
    const T* first = k == 0 ? data.y : data.inputs[k - 1];
    if (!cuda::is_aligned(first)) return false;
    for (int axis = 0; axis < inner; ++axis)
      if (loop.strides[k][axis] % kVector != 0) return false;
  }
  return true;
}

template <class T, int kInputs, class Op>
void launch_elementwise(const char* name, Context& ctx, const Op& op, const ElementwiseData<T, kInputs>& data,
                        const StridedLoop<kInputs + 1>& loop) {
  constexpr int kVector = sizeof(uint4) / sizeof(T);
  if (can_vectorise<kVector>(data, loop))
    cuda::launch(name, elementwise_kernel<kVector, T, kInputs, Op>,
                 cuda::grid_stride_shape((loop.count + kVector - 1) / kVector), ctx.stream(), op, data, loop);
  else
    cuda::launch(name, elementwise_kernel<1, T, kInputs, Op>, cuda::grid_stride_shape(loop.count),
                 ctx.stream(), op, data, loop);
}

}  // namespace burin::ops
