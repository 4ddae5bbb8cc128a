#include <burin/ops/common/pool2d_cpu.h>
#include <burin/ops/max_pool2d/max_pool2d_impl.h>
#include <burin/runtime/dispatch.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

namespace burin::max_pool2d_impl {

namespace {

/// The larger of two, or the first NaN. Written without a branch, so that loops over it vectorise.
template <class T>
T larger(T best, T value) {
  const float a = static_cast<float>(best);
  const float b = static_cast<float>(value);
  return (a >= b) | (a != a) ? best : value;
}

template <int kStride>
void fold_line(const float* __restrict line, std::int64_t shift, std::int64_t begin, std::int64_t end,
               float* __restrict y) {
  for (std::int64_t o = begin; o < end; ++o) y[o] = larger(y[o], line[o * kStride + shift]);
}

/// Neighbouring floats of two vectors, told apart: those at even and at odd places.
struct EightLanes {
  typedef float Vector __attribute__((vector_size(32)));
  static constexpr std::int64_t kCount = 8;
  static Vector even(Vector a, Vector b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14); }
  static Vector odd(Vector a, Vector b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15); }
};
struct FourLanes {
  typedef float Vector __attribute__((vector_size(16)));
  static constexpr std::int64_t kCount = 4;
  static Vector even(Vector a, Vector b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6); }
  static Vector odd(Vector a, Vector b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7); }
};

/// One row of 2 x 2 windows at stride 2, `count` >= Lanes::kCount of them; the last vector overlaps the one
/// before.
template <class Lanes>
void pool_row_2x2(const float* top, const float* bottom, std::int64_t count, float* y) {
  using Vector = typename Lanes::Vector;
  const auto load = [](const float* from) {
    Vector vector;
    std::memcpy(&vector, from, sizeof vector);
    return vector;
  };
  const auto larger_lanes = [](Vector a, Vector b) -> Vector { return (a >= b) | (a != a) ? a : b; };
  for (std::int64_t o = 0;; o = std::min(o + Lanes::kCount, count - Lanes::kCount)) {
    const Vector left = larger_lanes(load(top + 2 * o), load(bottom + 2 * o));
    const Vector right =
        larger_lanes(load(top + 2 * o + Lanes::kCount), load(bottom + 2 * o + Lanes::kCount));
    const Vector result = larger_lanes(Lanes::even(left, right), Lanes::odd(left, right));
    std::memcpy(y + o, &result, sizeof result);
    if (o + Lanes::kCount >= count) return;
  }
}

/// Planar f32, where a maximum of maxima may be taken in any order: each column of a window's rows first,
/// over whole rows of x, then along that line.
void planar_f32(ThreadPool& threads, const Pool2d<std::int64_t>& p, const float* x, float* y) {
  constexpr std::int64_t kGrain =
      1 << 14;  // elements read: below this a second thread costs more than it saves
  const std::int64_t row_taps = std::max<std::int64_t>(1, std::min(p.h.kernel, p.h.in) * p.w.in);
  const auto is_pair = [](const PoolAxis<std::int64_t>& axis) {
    return axis.kernel == 2 && axis.stride == 2 && axis.dilation == 1 && axis.before == 0 &&
           2 * axis.out <= axis.in;
  };
  const bool is_2x2 = is_pair(p.h) && is_pair(p.w) && p.w.out >= 4;
  const auto pool_row = [&](std::int64_t oh, const float* plane, float* line, float* out) {
    if (is_2x2) {
      const float* top = plane + 2 * oh * p.w.in;
      return p.w.out >= 8 ? pool_row_2x2<EightLanes>(top, top + p.w.in, p.w.out, out)
                          : pool_row_2x2<FourLanes>(top, top + p.w.in, p.w.out, out);
    }
    const PoolTaps<std::int64_t> rows = p.h.taps(oh);
    std::copy_n(plane + rows.first * p.w.in, p.w.in, line);
    for (std::int64_t h = rows.first + p.h.dilation; h < rows.end; h += p.h.dilation) {
      const float* __restrict row = plane + h * p.w.in;
      for (std::int64_t i = 0; i < p.w.in; ++i) line[i] = larger(line[i], row[i]);
    }
    std::fill_n(out, p.w.out, -std::numeric_limits<float>::infinity());
    for (std::int64_t k = 0; k < p.w.kernel; ++k) {
      const std::int64_t shift =
          k * p.w.dilation - p.w.before;  // tap k of window o is column o * stride + shift
      const std::int64_t begin = shift >= 0 ? 0 : (p.w.stride - 1 - shift) / p.w.stride;
      const std::int64_t last = p.w.in - 1 - shift;
      const std::int64_t end = last < 0 ? 0 : std::min(p.w.out, last / p.w.stride + 1);
      if (p.w.stride == 1)
        fold_line<1>(line, shift, begin, end, out);
      else if (p.w.stride == 2)
        fold_line<2>(line, shift, begin, end, out);
      else
        for (std::int64_t o = begin; o < end; ++o) out[o] = larger(out[o], line[o * p.w.stride + shift]);
    }
  };
  threads.for_ranges(p.batch * p.channels * p.h.out, std::max<std::int64_t>(1, kGrain / row_taps),
                     [&](std::int64_t begin, std::int64_t end) {
                       std::vector<float> line(static_cast<std::size_t>(p.w.in));
                       for (std::int64_t i = begin; i < end; ++i)
                         pool_row(i % p.h.out, x + i / p.h.out * p.h.in * p.w.in, line.data(),
                                  y + i * p.w.out);
                     });
}

}  // namespace

void cpu(Context& ctx, const Problem& problem, const Tensor& x, Tensor& y) {
  if (x.dtype() == DType::f32 && problem.layout == Layout::contiguous)
    return planar_f32(ctx.threads(), problem.pool, x.data<float>(), y.data<float>());
  with_float_dtype(x.dtype(), "max_pool2d", [&]<class T>() {
    pool2d_cpu::pool2d(
        ctx.threads(), problem.pool, problem.layout, x.data<T>(), y.data<T>(),
        T(-std::numeric_limits<float>::infinity()), [](T best, T value) { return larger(best, value); },
        [](auto&&...) {});
  });
}

void cpu_with_indices(Context& ctx, const Problem& problem, IndexOrder order, const Tensor& x,
                      MaxPool2dResult& y) {
  const Pool2d<std::int64_t>& p = problem.pool;
  const bool planar = problem.layout == Layout::contiguous;
  const std::int64_t plane = p.h.in * p.w.in;
  const std::int64_t pitch = planar ? 1 : p.channels;  // elements between two columns of x
  with_float_dtype(x.dtype(), "max_pool2d", [&]<class T>() {
    const T* in = x.data<T>();
    T* values = y.values.data<T>();
    std::int64_t* indices = y.indices.data<std::int64_t>();
    const auto pool_row = [&](std::int64_t n, std::int64_t c, std::int64_t oh) {
      const T* origin = in + (planar ? (n * p.channels + c) * plane : n * plane * p.channels + c);
      const PoolTaps<std::int64_t> rows = p.h.taps(oh);
      for (std::int64_t ow = 0; ow < p.w.out; ++ow) {
        const PoolTaps<std::int64_t> columns = p.w.taps(ow);
        std::int64_t best_h = rows.first;
        std::int64_t best_w = columns.first;
        float best = static_cast<float>(origin[(best_h * p.w.in + best_w) * pitch]);
        for (std::int64_t h = rows.first; h < rows.end; h += p.h.dilation)
          for (std::int64_t w = columns.first; w < columns.end; w += p.w.dilation) {
            const float value = static_cast<float>(origin[(h * p.w.in + w) * pitch]);
            if (exceeds(value, best)) {
              best = value;
              best_h = h;
              best_w = w;
            }
          }
        const std::int64_t at = planar ? ((n * p.channels + c) * p.h.out + oh) * p.w.out + ow
                                       : ((n * p.h.out + oh) * p.w.out + ow) * p.channels + c;
        values[at] = T(best);
        indices[at] = (n * p.channels + c) * plane +
                      (order == IndexOrder::row_major ? best_h * p.w.in + best_w : best_h + best_w * p.h.in);
      }
    };
    ctx.threads().for_ranges(p.batch * p.channels * p.h.out, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        pool_row(i / p.h.out / p.channels, i / p.h.out % p.channels, i % p.h.out);
    });
  });
}

}  // namespace burin::max_pool2d_impl
