#pragma once
// Private: the pooling kernel. A window is folded row by row, left to right, in both layouts, so the results
// of both are equal bit for bit.

#include <burin/ops/common/element.cuh>
#include <burin/ops/common/pool2d.h>
#include <burin/runtime/cuda/launch.cuh>
#include <burin/runtime/tensor.h>

#include <cstdint>
#include <limits>

namespace burin::pool2d_cuda {

inline constexpr int kThreads = 256;

/// Neighbouring elements that are read and written at once.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T values[kCount];
};

/// Where the thread's output lies: y is written in memory order, so only x needs an address.
template <class Index>
struct Window {
  Index n, c, oh, ow;
};

template <int kPack, class Index>
__device__ inline Window<Index> window_of(const Pool2d<Index>& p, bool channels_last, Index rest) {
  Window<Index> at;
  if (channels_last) {
    const Index packs = p.channels / kPack;
    at.c = rest % packs * kPack;
    rest /= packs;
  }
  at.ow = rest % p.w.out;
  rest /= p.w.out;
  at.oh = rest % p.h.out;
  rest /= p.h.out;
  if (!channels_last) {
    at.c = rest % p.channels;
    rest /= p.channels;
  }
  at.n = rest;
  return at;
}

/// Element (n, c, 0, 0) of x.
template <class Index>
__device__ inline Index origin_of(const Pool2d<Index>& p, bool channels_last, const Window<Index>& at) {
  const Index plane = p.h.in * p.w.in;
  return channels_last ? at.n * plane * p.channels + at.c : (at.n * p.channels + at.c) * plane;
}

/// One thread for kPack outputs that are neighbours in memory: channels of one pixel if kPack > 1. Fold has
/// init(), (sum, value) and finish(sum, p, oh, ow), in float.
template <class T, int kPack, class Index, class Fold>
__global__ void __launch_bounds__(kThreads)
    pool2d_kernel(T* __restrict__ y, const T* __restrict__ x, Pool2d<Index> p, bool channels_last,
                  std::int64_t packs, Fold fold) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (thread >= packs) return;
  const Window<Index> at = window_of<kPack>(p, channels_last, static_cast<Index>(thread));
  const T* origin = x + origin_of(p, channels_last, at);
  const Index pitch = channels_last ? p.channels : 1;
  float sums[kPack];
#pragma unroll
  for (int i = 0; i < kPack; ++i) sums[i] = fold.init();
  const PoolTaps<Index> rows = p.h.taps(at.oh);
  const PoolTaps<Index> columns = p.w.taps(at.ow);
  for (Index h = rows.first; h < rows.end; h += p.h.dilation)
    for (Index w = columns.first; w < columns.end; w += p.w.dilation) {
      const auto pack = *reinterpret_cast<const Pack<T, kPack>*>(origin + (h * p.w.in + w) * pitch);
#pragma unroll
      for (int i = 0; i < kPack; ++i) sums[i] = fold(sums[i], widened(pack.values[i]));
    }
  Pack<T, kPack> result;
#pragma unroll
  for (int i = 0; i < kPack; ++i) result.values[i] = narrowed<T>(fold.finish(sums[i], p, at.oh, at.ow));
  reinterpret_cast<Pack<T, kPack>*>(y)[thread] = result;
}

/// Whether 32-bit indices can count the elements of x and y and the positions in a padded axis.
inline bool fits_int32(const Pool2d<std::int64_t>& p) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::int64_t planes = p.batch * p.channels;
  if (planes * p.h.in * p.w.in > kMost || planes * p.h.out * p.w.out > kMost) return false;
  for (const PoolAxis<std::int64_t>* axis : {&p.h, &p.w})
    if (axis->in + axis->before + axis->after + axis->span() + axis->dilation > kMost) return false;
  return true;
}

/// Calls body(p) with the narrowest geometry that fits.
template <class Body>
void with_index(const Pool2d<std::int64_t>& p, Body&& body) {
  if (fits_int32(p))
    body(p.as<std::int32_t>());
  else
    body(p);
}

template <class T, class Fold>
void pool2d(const char* op, StreamView stream, const Pool2d<std::int64_t>& p, Layout layout, const T* x, T* y,
            Fold fold) {
  constexpr int kWide = 16 / sizeof(T);
  const bool channels_last = layout == Layout::channels_last;
  const bool aligned = cuda::is_aligned(x) && cuda::is_aligned(y);
  const std::int64_t count = output_shape(p).count();
  with_index(p, [&]<class Index>(const Pool2d<Index>& q) {
    if (channels_last && aligned && p.channels % kWide == 0)
      cuda::launch(op, pool2d_kernel<T, kWide, Index, Fold>,
                   {.grid = cuda::blocks_for(op, count / kWide, kThreads), .block = kThreads}, stream, y, x,
                   q, channels_last, count / kWide, fold);
    else
      cuda::launch(op, pool2d_kernel<T, 1, Index, Fold>,
                   {.grid = cuda::blocks_for(op, count, kThreads), .block = kThreads}, stream, y, x, q,
                   channels_last, count, fold);
  });
}

}  // namespace burin::pool2d_cuda
