// cuBLASLt's matrices are column-major, and a row-major y (m x n) is a column-major transpose(y) (n x m).
// So the product asked of it is transpose(y) = transpose(b) * transpose(a): its first operand is our b, its
// rows are our columns, and its bias, which runs along its rows, is ours.
#include <burin/ops/gemm/gemm_cublaslt.h>
#include <burin/runtime/check.h>
#include <burin/runtime/cuda/cublaslt_api.h>
#include <burin/runtime/cuda/device_guard.h>
#include <burin/runtime/cuda/libraries.h>
#include <burin/runtime/cuda/unique_handle.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace burin::gemm {
namespace {

using cuda::cublaslt_api;

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // what cuBLAS itself takes on Hopper

struct Destroy {
  void operator()(cublasLtMatmulDesc_t x) const noexcept { cublaslt_api().cublasLtMatmulDescDestroy(x); }
  void operator()(cublasLtMatrixLayout_t x) const noexcept { cublaslt_api().cublasLtMatrixLayoutDestroy(x); }
  void operator()(cublasLtMatmulPreference_t x) const noexcept {
    cublaslt_api().cublasLtMatmulPreferenceDestroy(x);
  }
};
using Layout = UniqueHandle<cublasLtMatrixLayout_t, Destroy>;

cudaDataType_t data_type(DType dtype) {
  return dtype == DType::f16 ? CUDA_R_16F : dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// Nothing for an activation that cuBLASLt has not. Its GELU is the tanh formula, but with a tanh good to
/// 2^-11 only.
std::optional<cublasLtEpilogue_t> epilogue(ActivationKind activation, bool has_bias) {
  switch (activation) {
    case ActivationKind::none: return has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case ActivationKind::relu: return has_bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    default: return std::nullopt;
  }
}

template <class T>
void set(const char* op, cublasLtMatmulDesc_t x, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  BURIN_CUBLASLT(op, cublasLtMatmulDescSetAttribute, x, attribute, &value, sizeof value);
}
template <class T>
void set(const char* op, cublasLtMatrixLayout_t x, cublasLtMatrixLayoutAttribute_t attribute,
         const T& value) {
  BURIN_CUBLASLT(op, cublasLtMatrixLayoutSetAttribute, x, attribute, &value, sizeof value);
}
template <class T>
void set(const char* op, cublasLtMatmulPreference_t x, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  BURIN_CUBLASLT(op, cublasLtMatmulPreferenceSetAttribute, x, attribute, &value, sizeof value);
}

/// The layout of a matrix that we store as `rows` rows of `columns` elements.
Layout make_layout(const char* op, DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t pitch,
                   std::int64_t batch, std::int64_t batch_stride) {
  cublasLtMatrixLayout_t raw = nullptr;
  BURIN_CUBLASLT(op, cublasLtMatrixLayoutCreate, &raw, data_type(dtype), static_cast<std::uint64_t>(columns),
                 static_cast<std::uint64_t>(rows), pitch);
  Layout layout(raw);
  if (batch > 1) {
    set(op, raw, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batch));
    set(op, raw, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride);
  }
  return layout;
}

/// What all candidates of one problem share.
struct Descriptors {
  UniqueHandle<cublasLtMatmulDesc_t, Destroy> product;
  Layout a, b, y;
};

Descriptors describe(const char* op, const Problem& p, const void* bias) {
  cublasLtMatmulDesc_t raw = nullptr;
  BURIN_CUBLASLT(op, cublasLtMatmulDescCreate, &raw,
                 p.dtype == DType::f32 && p.allow_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                 CUDA_R_32F);
  Descriptors d;
  d.product = UniqueHandle<cublasLtMatmulDesc_t, Destroy>(raw);
  set(op, raw, CUBLASLT_MATMUL_DESC_TRANSA, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(op, raw, CUBLASLT_MATMUL_DESC_TRANSB, p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(op, raw, CUBLASLT_MATMUL_DESC_EPILOGUE, *epilogue(p.activation.kind, bias != nullptr));
  if (bias) set(op, raw, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  d.a = make_layout(op, p.dtype, p.a_transposed ? p.k : p.m, p.a_transposed ? p.m : p.k, p.lda, p.batch,
                    p.a_batch_stride);
  d.b = make_layout(op, p.dtype, p.b_transposed ? p.n : p.k, p.b_transposed ? p.k : p.n, p.ldb, p.batch,
                    p.b_batch_stride);
  d.y = make_layout(op, p.dtype, p.m, p.n, p.ldy, p.batch, p.y_batch_stride);
  return d;
}

std::string refusal_of(const Problem& p) {
  if (!epilogue(p.activation.kind, false)) return "it has no such activation";
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (std::max({p.m, p.n, p.k, p.batch}) > kMost) return "an extent is above 2^31 - 1";
  return {};
}

}  // namespace

struct CublasLtPlan {
  std::shared_ptr<const Descriptors> descriptors;
  cublasLtMatmulAlgo_t algorithm;
  std::size_t workspace_bytes;
};

std::size_t alignment(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | 256;
  return bits & (~bits + 1);
}

std::size_t workspace_bytes(const CublasLtPlan& plan) { return plan.workspace_bytes; }

CublasLtPlans prepare_cublaslt(Context& ctx, const char* op, const Problem& p, const Operands& operands,
                               int most) {
  if (std::string refusal = refusal_of(p); !refusal.empty()) return {{}, std::move(refusal)};
  cublasLtHandle_t handle = nullptr;
  try {
    handle = static_cast<cublasLtHandle_t>(ctx.libraries().cublaslt());
  } catch (const LibraryError& error) {
    return {{}, error.what()};
  }
  const cuda::DeviceGuard guard(ctx.device().index, op);
  auto descriptors = std::make_shared<const Descriptors>(describe(op, p, operands.bias));

  cublasLtMatmulPreference_t raw = nullptr;
  BURIN_CUBLASLT(op, cublasLtMatmulPreferenceCreate, &raw);
  const UniqueHandle<cublasLtMatmulPreference_t, Destroy> preference(raw);
  const auto item = static_cast<std::int64_t>(item_bytes(p.dtype));
  const auto aligned = [item](const void* address, std::int64_t batch_stride) {  // over every batch
    const auto bits =
        reinterpret_cast<std::uintptr_t>(address) | static_cast<std::uintptr_t>(batch_stride * item);
    return static_cast<std::uint32_t>(alignment(reinterpret_cast<const void*>(bits)));
  };
  const std::uint32_t y_alignment =
      std::min(aligned(operands.y, p.y_batch_stride), aligned(operands.bias, 0));
  set(op, raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  set(op, raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned(operands.b, p.b_batch_stride));
  set(op, raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned(operands.a, p.a_batch_stride));
  set(op, raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, y_alignment);
  set(op, raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, y_alignment);
  // Partial sums of a split k stay in f32: one rounding to f16 or bf16, at the end.
  set(op, raw, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));

  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int found = 0;
  const Descriptors& d = *descriptors;
  const cublasStatus_t status = cublaslt_api().cublasLtMatmulAlgoGetHeuristic(
      handle, d.product.get(), d.b.get(), d.a.get(), d.y.get(), d.y.get(), raw, most, results.data(), &found);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED)
    cuda::check_cublaslt(status, "cublasLtMatmulAlgoGetHeuristic", op);
  CublasLtPlans out;
  for (int i = 0; i < found; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS)
      out.plans.push_back(
          std::make_shared<const CublasLtPlan>(CublasLtPlan{descriptors, result.algo, result.workspaceSize}));
  }
  if (out.plans.empty()) out.refusal = "it has no algorithm for this problem";
  return out;
}

void run_cublaslt(Context& ctx, const char* op, const CublasLtPlan& plan, const Operands& operands,
                  void* workspace) {
  const cuda::DeviceGuard guard(ctx.device().index, op);
  const Descriptors& d = *plan.descriptors;
  cublasLtMatmulDescOpaque_t product = *d.product.get();  // the address of the bias is part of it
  if (operands.bias) set(op, &product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  const float one = 1.0f;
  const float zero = 0.0f;
  BURIN_CUBLASLT(op, cublasLtMatmul, static_cast<cublasLtHandle_t>(ctx.libraries().cublaslt()), &product,
                 &one, operands.b, d.b.get(), operands.a, d.a.get(), &zero, operands.y, d.y.get(), operands.y,
                 d.y.get(), &plan.algorithm, workspace, plan.workspace_bytes,
                 static_cast<cudaStream_t>(ctx.stream().native_handle()));
}

}  // namespace burin::gemm
