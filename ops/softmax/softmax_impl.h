#pragma once
// Private: the backends of softmax. x and y are contiguous and not empty; on the CPU they are f32 or f64.

#include <burin/ops/common/lines.h>
#include <burin/ops/softmax/softmax.h>

namespace burin::softmax_impl {

void cpu(Context& ctx, const Lines& lines, bool log, const Tensor& x, Tensor& y);
void cuda(Context& ctx, const Lines& lines, bool log, const Tensor& x, Tensor& y);

}  // namespace burin::softmax_impl
