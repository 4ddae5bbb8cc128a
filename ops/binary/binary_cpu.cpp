#include <burin/ops/binary/binary_impl.h>
#include <burin/runtime/cpu/thread_pool.h>

namespace burin::binary_impl {
namespace {

constexpr std::int64_t kGrain = 1 << 15;  // elements: below this a second thread costs more than it saves

// y may be a or b, which hides from the compiler that no iteration reads what another wrote: hence ivdep.
template <BinaryKind kKind, class T>
void apply_run(T* y, const T* a, const T* b, const std::int64_t (&steps)[3], std::int64_t count) {
  if (steps[0] == 1 && steps[1] == 1 && steps[2] == 1) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) y[i] = apply<kKind>(a[i], b[i]);
  } else if (steps[0] == 1 && steps[1] == 1 && steps[2] == 0) {
    const T scalar = *b;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) y[i] = apply<kKind>(a[i], scalar);
  } else if (steps[0] == 1 && steps[1] == 0 && steps[2] == 1) {
    const T scalar = *a;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) y[i] = apply<kKind>(scalar, b[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) y[i * steps[0]] = apply<kKind>(a[i * steps[1]], b[i * steps[2]]);
  }
}

}  // namespace

void cpu(Context& ctx, BinaryKind kind, Tensor& y, const Tensor& a, const Tensor& b,
         const StridedLoop<3>& loop) {
  const int inner = loop.rank - 1;
  const std::int64_t steps[3] = {loop.strides[0][inner], loop.strides[1][inner], loop.strides[2][inner]};
  with_numeric_dtype(y.dtype(), name(kind), [&]<class T>() {
    T* y_data = y.data<T>();
    const T* a_data = a.data<T>();
    const T* b_data = b.data<T>();
    with_kind(kind, [&]<BinaryKind kKind>() {
      ctx.threads().for_ranges(loop.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
        for_each_run(loop, begin, end, [&](const auto& offsets, std::int64_t count) {
          apply_run<kKind>(y_data + offsets[0], a_data + offsets[1], b_data + offsets[2], steps, count);
        });
      });
    });
  });
}

}  // namespace burin::binary_impl
