#pragma once
// Private: from tensors to a matrix product on a backend; all of matmul and linear but their checks.

#include <burin/ops/common/activation.h>
#include <burin/runtime/context.h>
#include <burin/runtime/tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace burin::gemm {

/// How the matrix of a view's last two axes lies in memory: rows of `pitch` elements from start to start, or
/// columns if transposed.
struct MatrixLayout {
  std::int64_t pitch;
  bool transposed;
};

/// Nothing if a product cannot read the view in place: one of the two strides must be 1 and the other at
/// least the extent that it steps over. The stride of an extent of 1 is never looked at.
std::optional<MatrixLayout> matrix_layout(const Tensor& x);

/// y = activation(a * b + bias) on the backend that the context prefers, or on the best.
///
/// a [..., m, k], b [..., k, n], with batch axes that broadcast to y's; any strides (operands that cannot be
/// read in place are copied). y [..., m, n], contiguous and apart from the inputs. bias [n] or undefined. One
/// dtype of f32, f16, bf16; all extents may be 0. The caller has checked all this; `op` is its name for
/// messages and plans.
void product(Context& ctx, const char* op, Tensor& y, Tensor a, Tensor b, Tensor bias, Activation activation);

}  // namespace burin::gemm
