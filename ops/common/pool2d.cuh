#pragma once
// Private: the pooling kernel. A window is folded row by row, left to right, in both layouts, so the results
// of both are equal bit for bit.

#include <burin/ops/common/element.cuh>
#include <burin/ops/common/fast_divmod.h>
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

/// An extent that numbers are divided by, with 32 bits by a multiplication.
template <class Index>
class Extent {
 public:
  explicit Extent(Index extent) : extent_(extent) {}
  /// Returns the quotient and leaves the remainder in `rest`.
  __device__ Index divide(Index n, Index& rest) const {
    rest = n % extent_;
    return n / extent_;
  }

 private:
  Index extent_;
};

template <>
class Extent<std::int32_t> {
 public:
  explicit Extent(std::int32_t extent) : extent_(static_cast<std::uint32_t>(extent < 1 ? 1 : extent)) {}
  __device__ std::int32_t divide(std::int32_t n, std::int32_t& rest) const {
    std::uint32_t remainder;
    const std::uint32_t quotient = extent_.divide(static_cast<std::uint32_t>(n), remainder);
    rest = static_cast<std::int32_t>(remainder);
    return static_cast<std::int32_t>(quotient);
  }

 private:
  FastDivmod extent_;
};

/// The windows of a call in y's order of memory, kPack channels at a time.
template <int kPack, class Index>
class Windows {
 public:
  Windows(const Pool2d<Index>& p, bool channels_last)
      : rows_(p.h.out), columns_(p.w.out), packs_(p.channels / kPack), channels_last_(channels_last) {}

  __device__ Window<Index> at(Index i) const {
    Window<Index> window;
    if (channels_last_) i = packs_.divide(i, window.c);
    i = columns_.divide(i, window.ow);
    i = rows_.divide(i, window.oh);
    if (!channels_last_) i = packs_.divide(i, window.c);
    window.c *= kPack;
    window.n = i;
    return window;
  }
  __device__ bool channels_last() const { return channels_last_; }

 private:
  Extent<Index> rows_, columns_, packs_;
  bool channels_last_;
};

/// Element (n, c, 0, 0) of x.
template <class Index>
__device__ inline Index origin_of(const Pool2d<Index>& p, bool channels_last, const Window<Index>& at) {
  const Index plane = p.h.in * p.w.in;
  return channels_last ? at.n * plane * p.channels + at.c : (at.n * p.channels + at.c) * plane;
}

/// One thread for kPack outputs that are neighbours in memory: channels of one pixel if kPack > 1. Fold has
/// init(), (sum, value) and finish(sum, p, oh, ow), in float. kKernel: the extent of the window along both
/// axes, whose elements are then all read before the first is folded; 0: any other, read one after the other.
template <class T, int kPack, int kKernel, class Index, class Fold>
__global__ void __launch_bounds__(kThreads)
    pool2d_kernel(T* __restrict__ y, const T* __restrict__ x, Pool2d<Index> p, Windows<kPack, Index> windows,
                  std::int64_t packs, Fold fold) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const Window<Index> at = windows.at(static_cast<Index>(thread));
  cuda::wait_for_previous();
  if (thread >= packs) return;
  const T* origin = x + origin_of(p, windows.channels_last(), at);
  const Index pitch = windows.channels_last() ? p.channels : 1;
  float sums[kPack];
#pragma unroll
  for (int i = 0; i < kPack; ++i) sums[i] = fold.init();
  const auto read = [&](Index h, Index w) {
    return *reinterpret_cast<const Pack<T, kPack>*>(origin + (h * p.w.in + w) * pitch);
  };
  const auto add = [&](const Pack<T, kPack>& pack) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) sums[i] = fold(sums[i], widened(pack.values[i]));
  };
  if constexpr (kKernel > 0) {
    Pack<T, kPack> packs[kKernel * kKernel];
    bool inside[kKernel * kKernel];
    const Index top = p.h.start(at.oh), left = p.w.start(at.ow);
#pragma unroll
    for (int i = 0; i < kKernel * kKernel; ++i) {
      const Index h = top + i / kKernel * p.h.dilation, w = left + i % kKernel * p.w.dilation;
      inside[i] = h >= 0 && h < p.h.in && w >= 0 && w < p.w.in;
      if (inside[i]) packs[i] = read(h, w);
    }
#pragma unroll
    for (int i = 0; i < kKernel * kKernel; ++i)
      if (inside[i]) add(packs[i]);
  } else {
    const PoolTaps<Index> rows = p.h.taps(at.oh);
    const PoolTaps<Index> columns = p.w.taps(at.ow);
    for (Index h = rows.first; h < rows.end; h += p.h.dilation)
      for (Index w = columns.first; w < columns.end; w += p.w.dilation) add(read(h, w));
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
    const auto run_kernel = [&]<int kPack, int kKernel>() {
      cuda::launch(
          op, pool2d_kernel<T, kPack, kKernel, Index, Fold>,
          {.grid = cuda::blocks_for(op, count / kPack, kThreads), .block = kThreads, .starts_early = true},
          stream, y, x, q, Windows<kPack, Index>(q, channels_last), count / kPack, fold);
    };
    const auto run = [&]<int kPack>() {
      if constexpr (sizeof(Index) == 4) {
        if (p.h.kernel == 2 && p.w.kernel == 2) return run_kernel.template operator()<kPack, 2>();
        if (p.h.kernel == 3 && p.w.kernel == 3) return run_kernel.template operator()<kPack, 3>();
      }
      run_kernel.template operator()<kPack, 0>();
    };
    if (channels_last && aligned && p.channels % kWide == 0)
      run.template operator()<kWide>();
    else
      run.template operator()<1>();
  });
}

}  // namespace burin::pool2d_cuda
