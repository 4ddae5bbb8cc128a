#pragma once
// Private: the loops of pooling on the CPU. A window is folded row by row, left to right, in both layouts, so
// the results of both are equal bit for bit.

#include <burin/ops/common/pool2d.h>
#include <burin/runtime/cpu/thread_pool.h>
#include <burin/runtime/tensor.h>

#include <algorithm>
#include <cstdint>

namespace burin::pool2d_cpu {

/// y[o] = fold(... fold(init, tap), tap) for the windows of one output row of a plane. Any parameters.
template <class T, class Fold>
void fold_row(const Pool2d<std::int64_t>& p, std::int64_t oh, const T* __restrict plane, T* __restrict y,
              T init, Fold fold) {
  std::fill_n(y, p.w.out, init);
  const PoolTaps<std::int64_t> taps = p.h.taps(oh);
  for (std::int64_t h = taps.first; h < taps.end; h += p.h.dilation) {
    for (std::int64_t k = 0; k < p.w.kernel; ++k) {
      // Tap k of window o is column o * stride + shift.
      const std::int64_t shift = k * p.w.dilation - p.w.before;
      const std::int64_t begin = shift >= 0 ? 0 : (p.w.stride - 1 - shift) / p.w.stride;
      const std::int64_t last = p.w.in - 1 - shift;
      const std::int64_t end = last < 0 ? 0 : std::min(p.w.out, last / p.w.stride + 1);
      const T* row = plane + h * p.w.in + shift;
      for (std::int64_t o = begin; o < end; ++o) y[o] = fold(y[o], row[o * p.w.stride]);
    }
  }
}

/// The same for the windows [begin, end) of a row, each wholly inside the plane, in one pass.
template <int kKernel, int kStride, class T, class Fold>
void fold_row_inside(const Pool2d<std::int64_t>& p, std::int64_t oh, std::int64_t begin, std::int64_t end,
                     const T* __restrict plane, T* __restrict y, T init, Fold fold) {
  const T* corner = plane + p.h.start(oh) * p.w.in - p.w.before;
  const std::int64_t pitch = p.w.in;
  for (std::int64_t o = begin; o < end; ++o) {
    T sum = init;
    for (int r = 0; r < kKernel; ++r)
      for (int s = 0; s < kKernel; ++s) sum = fold(sum, corner[r * pitch + o * kStride + s]);
    y[o] = sum;
  }
}

template <class T, class Fold>
T fold_window(const Pool2d<std::int64_t>& p, std::int64_t oh, std::int64_t ow, const T* plane, T init,
              Fold fold) {
  const PoolTaps<std::int64_t> rows = p.h.taps(oh);
  const PoolTaps<std::int64_t> columns = p.w.taps(ow);
  for (std::int64_t h = rows.first; h < rows.end; h += p.h.dilation)
    for (std::int64_t w = columns.first; w < columns.end; w += p.w.dilation)
      init = fold(init, plane[h * p.w.in + w]);
  return init;
}

/// A row of square, undilated windows of a size known here: the common layers.
template <int kKernel, int kStride, class T, class Fold>
void fold_row_square(const Pool2d<std::int64_t>& p, std::int64_t oh, const T* plane, T* y, T init,
                     Fold fold) {
  const std::int64_t top = p.h.start(oh);
  if (top < 0 || top + kKernel > p.h.in) return fold_row(p, oh, plane, y, init, fold);
  const std::int64_t begin = std::min(p.w.out, (p.w.before + kStride - 1) / kStride);
  const std::int64_t room = p.w.in + p.w.before - kKernel;
  const std::int64_t end = std::max(begin, room < 0 ? 0 : std::min(p.w.out, room / kStride + 1));
  fold_row_inside<kKernel, kStride>(p, oh, begin, end, plane, y, init, fold);
  for (std::int64_t o = 0; o < begin; ++o) y[o] = fold_window(p, oh, o, plane, init, fold);
  for (std::int64_t o = end; o < p.w.out; ++o) y[o] = fold_window(p, oh, o, plane, init, fold);
}

/// One output pixel, all channels innermost.
template <class T, class Fold>
void fold_pixel(const Pool2d<std::int64_t>& p, std::int64_t oh, std::int64_t ow, const T* image,
                T* __restrict y, T init, Fold fold) {
  std::fill_n(y, p.channels, init);
  const PoolTaps<std::int64_t> rows = p.h.taps(oh);
  const PoolTaps<std::int64_t> columns = p.w.taps(ow);
  for (std::int64_t h = rows.first; h < rows.end; h += p.h.dilation)
    for (std::int64_t w = columns.first; w < columns.end; w += p.w.dilation) {
      const T* __restrict x = image + (h * p.w.in + w) * p.channels;
      for (std::int64_t c = 0; c < p.channels; ++c) y[c] = fold(y[c], x[c]);
    }
}

/// Pools x into y. `finish(y, count, step, oh, ow)` completes `count` sums that lie side by side: those of
/// columns ow, ow + 1, ... (step 1), or those of all channels at column ow (step 0).
template <class T, class Fold, class Finish>
void pool2d(ThreadPool& threads, const Pool2d<std::int64_t>& p, Layout layout, const T* x, T* y, T init,
            Fold fold, Finish finish) {
  constexpr std::int64_t kGrain = 1 << 14;  // taps: below this a second thread costs more than it saves
  const std::int64_t row_taps = std::max<std::int64_t>(1, std::min(p.h.kernel, p.h.in) * p.w.in);
  if (layout == Layout::contiguous) {
    const auto is = [&](std::int64_t kernel, std::int64_t stride) {
      return p.h.kernel == kernel && p.w.kernel == kernel && p.w.stride == stride && p.h.dilation == 1 &&
             p.w.dilation == 1;
    };
    const auto row = is(2, 2)   ? &fold_row_square<2, 2, T, Fold>
                     : is(3, 2) ? &fold_row_square<3, 2, T, Fold>
                     : is(3, 1) ? &fold_row_square<3, 1, T, Fold>
                                : &fold_row<T, Fold>;
    threads.for_ranges(p.batch * p.channels * p.h.out, std::max<std::int64_t>(1, kGrain / row_taps),
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t i = begin; i < end; ++i) {
                           const std::int64_t oh = i % p.h.out;
                           T* out = y + i * p.w.out;
                           row(p, oh, x + i / p.h.out * p.h.in * p.w.in, out, init, fold);
                           finish(out, p.w.out, 1, oh, std::int64_t{0});
                         }
                       });
  } else {
    threads.for_ranges(p.batch * p.h.out, std::max<std::int64_t>(1, kGrain / (row_taps * p.channels)),
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t i = begin; i < end; ++i) {
                           const std::int64_t oh = i % p.h.out;
                           const T* image = x + i / p.h.out * p.h.in * p.w.in * p.channels;
                           for (std::int64_t ow = 0; ow < p.w.out; ++ow) {
                             T* out = y + (i * p.w.out + ow) * p.channels;
                             fold_pixel(p, oh, ow, image, out, init, fold);
                             finish(out, p.channels, 0, oh, ow);
                           }
                         }
                       });
  }
}

}  // namespace burin::pool2d_cpu
