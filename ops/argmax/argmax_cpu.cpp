#include <burin/ops/argmax/argmax_impl.h>
#include <burin/runtime/cpu/thread_pool.h>
#include <burin/runtime/dispatch.h>
#include <burin/runtime/divide_up.h>

#include <algorithm>

namespace burin::argmax_impl {
namespace {

constexpr std::int64_t kColumns = 64;  // neighbouring lines that are read together, as they lie in memory

template <class T>
void argmax_columns(const T* x, std::int64_t width, std::int64_t pitch, std::int64_t columns,
                    std::int64_t* y) {
  comparable_t<T> best[kColumns];
  for (std::int64_t c = 0; c < columns; ++c) {
    best[c] = static_cast<comparable_t<T>>(x[c]);
    y[c] = 0;
  }
  for (std::int64_t i = 1; i < width; ++i)
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto value = static_cast<comparable_t<T>>(x[i * pitch + c]);
      if (!exceeds(value, best[c])) continue;
      best[c] = value;
      y[c] = i;
    }
}

}  // namespace

void cpu(Context& ctx, const Lines& lines, const Tensor& x, Tensor& y) {
  const std::int64_t blocks = divide_up(lines.inner, kColumns);
  const std::int64_t grain =
      std::max<std::int64_t>(1, (1 << 14) / (std::min(lines.inner, kColumns) * lines.width));
  std::int64_t* out = y.data<std::int64_t>();
  with_any_dtype(x.dtype(), "argmax", [&]<class T>() {
    const T* in = x.data<T>();
    ctx.threads().for_ranges(lines.outer * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t line = i / blocks;
        const std::int64_t column = i % blocks * kColumns;
        argmax_columns(in + line * lines.width * lines.inner + column, lines.width, lines.inner,
                       std::min(kColumns, lines.inner - column), out + line * lines.inner + column);
      }
    });
  });
}

}  // namespace burin::argmax_impl
