#include <burin/ops/common/pool2d_cpu.h>
#include <burin/ops/max_pool2d/max_pool2d_impl.h>
#include <burin/runtime/dispatch.h>

#include <limits>

namespace burin::max_pool2d_impl {

void cpu(Context& ctx, const Problem& problem, const Tensor& x, Tensor& y) {
  with_float_dtype(x.dtype(), "max_pool2d", [&]<class T>() {
    const auto larger = [](T best, T value) {
      const float a = static_cast<float>(best);
      const float b = static_cast<float>(value);
      return (a >= b) | (a != a) ? best : value;
    };
    pool2d_cpu::pool2d(ctx.threads(), problem.pool, problem.layout, x.data<T>(), y.data<T>(),
                       T(-std::numeric_limits<float>::infinity()), larger, [](auto&&...) {});
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
