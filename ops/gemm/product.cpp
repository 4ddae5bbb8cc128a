#include <burin/ops/gemm/gemm_cpu.h>
#include <burin/ops/gemm/gemm_gpu.h>
#include <burin/ops/gemm/product.h>
#include <burin/runtime/config.h>
#include <burin/runtime/copy.h>
#include <burin/runtime/strided.h>

#include <span>
#include <utility>

namespace burin::gemm {
namespace {

void dispatch(Context& ctx, const char* op, const Problem& p, const Operands& o) {
  if constexpr (kHasCuda)
    if (ctx.device().is_cuda()) return run_on_gpu(ctx, op, p, o);
  cpu(ctx.threads(), p, static_cast<const float*>(o.a), static_cast<const float*>(o.b),
      static_cast<const float*>(o.bias), static_cast<float*>(o.y));
}

/// The strides of x's leading axes when read as `batch`.
Strides batch_strides(const Tensor& x, const Shape& batch) {
  Strides strides = Strides::filled(batch.rank(), 0);
  const int axes = x.rank() - 2;
  for (int axis = 0; axis < axes; ++axis)
    if (x.shape()[axis] != 1) strides[batch.rank() - axes + axis] = x.strides()[axis];
  return strides;
}

}  // namespace

std::optional<MatrixLayout> matrix_layout(const Tensor& x) {
  const std::int64_t rows = x.extent(-2);
  const std::int64_t columns = x.extent(-1);
  const std::int64_t row_stride = x.strides()[x.rank() - 2];
  const std::int64_t column_stride = x.strides()[x.rank() - 1];
  if (x.count() == 0) return MatrixLayout{columns, false};  // nothing is read
  const bool by_rows = (columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns);
  const bool by_columns = (rows == 1 || row_stride == 1) && (columns == 1 || column_stride >= rows);
  if (by_columns && (!by_rows || rows > columns))  // both: the one whose contiguous runs are the longer
    return MatrixLayout{columns == 1 ? rows : column_stride, true};
  if (by_rows) return MatrixLayout{rows == 1 ? columns : row_stride, false};
  return std::nullopt;
}

void product(Context& ctx, const char* op, Tensor& y, Tensor a, Tensor b, Tensor bias,
             Activation activation) {
  if (y.count() == 0) return;
  if (ctx.device().is_cpu() && y.dtype() != DType::f32) {
    Tensor wide = empty(ctx, y.shape());
    if (bias.defined()) bias = to(ctx, bias, DType::f32);
    product(ctx, op, wide, to(ctx, a, DType::f32), to(ctx, b, DType::f32), bias, activation);
    return copy(ctx, y, wide);
  }
  if (!matrix_layout(a)) a = contiguous(ctx, a);
  if (!matrix_layout(b)) b = contiguous(ctx, b);
  if (bias.defined()) bias = contiguous(ctx, bias);
  const MatrixLayout a_layout = *matrix_layout(a);
  const MatrixLayout b_layout = *matrix_layout(b);

  const std::span<const std::int64_t> extents(y.shape().begin(), y.shape().end());
  const Shape batch(extents.first(extents.size() - 2));
  const StridedLoop<3> loop = make_strided_loop<3>(
      batch, {batch_strides(y, batch), batch_strides(a, batch), batch_strides(b, batch)});
  Problem p{};
  p.m = a.extent(-2);
  p.n = b.extent(-1);
  p.k = a.extent(-1);
  p.dtype = y.dtype();
  p.a_transposed = a_layout.transposed;
  p.b_transposed = b_layout.transposed;
  p.lda = a_layout.pitch;
  p.ldb = b_layout.pitch;
  p.ldy = p.n;
  p.allow_tf32 = ctx.precision().allow_tf32 && y.dtype() == DType::f32;
  p.activation = activation;

  // The innermost batch axis joins the rows where one b serves all and the rows of a follow each other: one
  // large product instead of many small ones.
  int axes = loop.rank;
  const std::int64_t a_step = loop.strides[1][axes - 1];
  const bool rows_follow =
      !p.a_transposed && (p.m == 1 ? a_step >= p.k : a_step == p.m * p.lda) && loop.extents[axes - 1] > 1;
  if (rows_follow && loop.strides[2][axes - 1] == 0) {
    if (p.m == 1) p.lda = a_step;
    p.m *= loop.extents[--axes];
  }
  p.batch = 1;
  if (axes > 0) {
    --axes;
    p.batch = loop.extents[axes];
    p.y_batch_stride = loop.strides[0][axes];
    p.a_batch_stride = loop.strides[1][axes];
    p.b_batch_stride = loop.strides[2][axes];
  }

  // The batch axes that are left do not merge into one: a product for each index.
  std::int64_t outer = 1;
  for (int axis = 0; axis < axes; ++axis) outer *= loop.extents[axis];
  const auto item = static_cast<std::int64_t>(item_bytes(y.dtype()));
  const auto at = [item](auto* data, std::int64_t offset) {
    return data ? reinterpret_cast<decltype(data)>(reinterpret_cast<std::intptr_t>(data) + offset * item)
                : data;
  };
  for (std::int64_t i = 0; i < outer; ++i) {
    std::int64_t offsets[3] = {0, 0, 0};
    std::int64_t rest = i;
    for (int axis = axes - 1; axis >= 0; --axis) {
      for (int operand = 0; operand < 3; ++operand)
        offsets[operand] += rest % loop.extents[axis] * loop.strides[operand][axis];
      rest /= loop.extents[axis];
    }
    dispatch(ctx, op, p,
             {at(std::as_const(a).raw(), offsets[1]), at(std::as_const(b).raw(), offsets[2]),
              std::as_const(bias).raw(), at(y.raw(), offsets[0])});
  }
}

}  // namespace burin::gemm
