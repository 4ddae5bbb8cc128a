#pragma once
// Private: the backends of max_pool2d. x and y are dense in `layout`; y is not empty.

#include <burin/ops/common/exceeds.h>
#include <burin/ops/common/pool2d.h>
#include <burin/ops/max_pool2d/max_pool2d.h>

namespace burin::max_pool2d_impl {

struct Problem {
  Pool2d<std::int64_t> pool;
  Layout layout;
};

void cpu(Context& ctx, const Problem& problem, const Tensor& x, Tensor& y);
void cuda(Context& ctx, const Problem& problem, const Tensor& x, Tensor& y);
void cudnn(Context& ctx, const Problem& problem, const Tensor& x, Tensor& y);

void cpu_with_indices(Context& ctx, const Problem& problem, IndexOrder order, const Tensor& x,
                      MaxPool2dResult& y);
void cuda_with_indices(Context& ctx, const Problem& problem, IndexOrder order, const Tensor& x,
                       MaxPool2dResult& y);

}  // namespace burin::max_pool2d_impl
