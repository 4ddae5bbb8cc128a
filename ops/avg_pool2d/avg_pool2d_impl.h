#pragma once
// Private: the backends of avg_pool2d. x and y are dense in `layout` and not empty; on the CPU both are f32.

#include <burin/ops/avg_pool2d/avg_pool2d.h>
#include <burin/ops/common/pool2d.h>

namespace burin::avg_pool2d_impl {

struct Problem {
  Pool2d<std::int64_t> pool;
  Layout layout;
  bool count_include_pad;
};

void cpu(Context& ctx, const Problem& problem, const Tensor& x, Tensor& y);
void cuda(Context& ctx, const Problem& problem, const Tensor& x, Tensor& y);

// y [N, C, 1, 1] is dense in either layout, for both are one.
void cpu_global(Context& ctx, Layout layout, const Tensor& x, Tensor& y);
void cuda_global(Context& ctx, Layout layout, const Tensor& x, Tensor& y);

/// What the sum of window o is divided by along one axis; the divisor is the product of both axes' counts.
template <class Index>
BURIN_HOST_DEVICE inline float window_count(const PoolAxis<Index>& axis, Index o, bool count_include_pad) {
  const PoolTaps<Index> taps = axis.taps(o);
  if (!count_include_pad) return static_cast<float>(taps.end - taps.first);
  const Index start = axis.start(o);
  const Index end = start + axis.span();
  const Index limit = axis.in + axis.after;
  return static_cast<float>((end < limit ? end : limit) - start);
}

}  // namespace burin::avg_pool2d_impl
