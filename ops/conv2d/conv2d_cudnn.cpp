// The convolution and what follows it as one operation graph of cuDNN's backend API:
// x, w -> convolution -> (+ residual) -> (+ bias) -> (relu) -> y,
// with f32 values between that never reach memory.

#include <burin/ops/conv2d/conv2d_impl.h>
#include <burin/runtime/check.h>
#include <burin/runtime/context.h>
#include <burin/runtime/cuda/cuda_api.h>
#include <burin/runtime/cuda/cudnn_api.h>
#include <burin/runtime/cuda/device_guard.h>
#include <burin/runtime/cuda/libraries.h>
#include <burin/runtime/cuda/unique_handle.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace burin::conv2d_impl {
namespace {

constexpr std::int64_t kMostWorkspaceBytes = std::int64_t{512} << 20;
constexpr std::size_t kMostMeasured = 8;

struct DestroyDescriptor {
  void operator()(cudnnBackendDescriptor_t descriptor) const noexcept {
    if (!cuda::is_unloading()) cuda::cudnn_api().cudnnBackendDestroyDescriptor(descriptor);
  }
};
using Descriptor = UniqueHandle<cudnnBackendDescriptor_t, DestroyDescriptor>;

Descriptor create(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t raw = nullptr;
  BURIN_CUDNN("conv2d", cudnnBackendCreateDescriptor, type, &raw);
  return Descriptor(raw);
}

void finalize(const Descriptor& descriptor) { BURIN_CUDNN("conv2d", cudnnBackendFinalize, descriptor.get()); }

template <class T>
void set(const Descriptor& descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         std::span<const T> values) {
  BURIN_CUDNN("conv2d", cudnnBackendSetAttribute, descriptor.get(), name, type,
              static_cast<std::int64_t>(values.size()), values.data());
}
template <class T>
void set(const Descriptor& descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         const T& value) {
  set(descriptor, name, type, std::span<const T>(&value, 1));
}
void set(const Descriptor& descriptor, cudnnBackendAttributeName_t name, const Descriptor& value) {
  set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.get());
}

/// Names of the tensors of a graph, as the variant pack uses them; virtual ones follow.
enum Uid : std::int64_t { kX = 1, kW, kBias, kResidual, kY, kFirstVirtual };

cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f16: return CUDNN_DATA_HALF;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    default: return CUDNN_DATA_FLOAT;
  }
}

Descriptor make_tensor(std::int64_t uid, const Shape& shape, Layout layout, cudnnDataType_t type,
                       bool is_virtual) {
  const TensorSpec spec = dense_spec(DType::f32, shape, Device::cpu(), layout);
  Descriptor tensor = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, uid);
  set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  set(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::int64_t{kCudnnAlignment});
  set(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::span(shape.begin(), 4));
  set(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::span(spec.strides.begin(), 4));
  set(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
  finalize(tensor);
  return tensor;
}

/// The operations of a problem; keeps every descriptor that the graph refers to.
class Graph {
 public:
  Graph(cudnnHandle_t handle, const Problem& problem) : problem_(problem) {
    const bool has_relu = problem.params.activation.kind == ActivationKind::relu;
    int left = 1 + problem.has_residual + problem.has_bias + has_relu;
    cudnnBackendDescriptor_t value = convolve(--left == 0);
    if (problem.has_residual)
      value = combine(CUDNN_POINTWISE_ADD, value, real(kResidual, problem.y), --left == 0);
    if (problem.has_bias)
      value = combine(CUDNN_POINTWISE_ADD, value, real(kBias, Shape({1, problem.w[0], 1, 1})), --left == 0);
    if (has_relu) combine(CUDNN_POINTWISE_RELU_FWD, value, nullptr, true);

    graph_ = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph_, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
    set(graph_, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        std::span<const cudnnBackendDescriptor_t>(operations_));
    finalize(graph_);
  }

  const Descriptor& descriptor() const { return graph_; }

 private:
  cudnnBackendDescriptor_t keep(Descriptor descriptor) {
    return kept_.emplace_back(std::move(descriptor)).get();
  }

  cudnnBackendDescriptor_t real(std::int64_t uid, const Shape& shape) {
    return keep(make_tensor(uid, shape, problem_.layout, data_type(problem_.dtype), false));
  }
  /// y, or a value on the way to it.
  cudnnBackendDescriptor_t result(bool is_last) {
    if (is_last) return real(kY, problem_.y);
    return keep(make_tensor(next_virtual_++, problem_.y, problem_.layout, CUDNN_DATA_FLOAT, true));
  }

  cudnnBackendDescriptor_t convolve(bool is_last) {
    const Conv2dParams& p = problem_.params;
    const std::array<std::int64_t, 2> before{p.padding.top, p.padding.left};
    const std::array<std::int64_t, 2> after{p.padding.bottom, p.padding.right};
    Descriptor convolution = create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const auto pair = [&](cudnnBackendAttributeName_t name, const std::array<std::int64_t, 2>& values) {
      set(convolution, name, CUDNN_TYPE_INT64, std::span<const std::int64_t>(values));
    };
    set(convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::int64_t{2});
    set(convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    set(convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
    pair(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, before);
    pair(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, after);
    pair(CUDNN_ATTR_CONVOLUTION_DILATIONS, p.dilation);
    pair(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, p.stride);
    finalize(convolution);

    const cudnnBackendDescriptor_t y = result(is_last);
    const cudnnBackendDescriptor_t x = real(kX, problem_.x);
    const cudnnBackendDescriptor_t w = real(kW, problem_.w);
    Descriptor operation = create(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution);
    set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, x);
    set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, w);
    set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_TYPE_BACKEND_DESCRIPTOR, y);
    set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1.0f);
    set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 0.0f);
    keep(std::move(convolution));
    finalize(operation);
    operations_.push_back(keep(std::move(operation)));
    return y;
  }

  /// mode(value) or mode(value, other), in f32.
  cudnnBackendDescriptor_t combine(cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t value,
                                   cudnnBackendDescriptor_t other, bool is_last) {
    Descriptor pointwise = create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    set(pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    if (mode == CUDNN_POINTWISE_RELU_FWD)
      set(pointwise, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, CUDNN_PROPAGATE_NAN);
    finalize(pointwise);

    const cudnnBackendDescriptor_t y = result(is_last);
    Descriptor operation = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
    set(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, value);
    if (other) set(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, other);
    set(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, y);
    keep(std::move(pointwise));
    finalize(operation);
    operations_.push_back(keep(std::move(operation)));
    return y;
  }

  const Problem& problem_;
  std::int64_t next_virtual_ = kFirstVirtual;
  std::vector<Descriptor> kept_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  Descriptor graph_;
};

/// Engine configurations that a heuristic proposes, best first; none if it does not know the graph.
std::vector<Descriptor> propose(const Descriptor& graph, cudnnBackendHeurMode_t mode) {
  Descriptor heuristic = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (cuda::cudnn_api().cudnnBackendFinalize(heuristic.get()) != CUDNN_STATUS_SUCCESS) return {};
  std::int64_t count = 0;
  BURIN_CUDNN("conv2d", cudnnBackendGetAttribute, heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
              CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr);
  std::vector<Descriptor> configurations;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i)
    raw.push_back(configurations.emplace_back(create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)).get());
  if (count > 0)
    BURIN_CUDNN("conv2d", cudnnBackendGetAttribute, heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, raw.data());
  configurations.resize(static_cast<std::size_t>(count));
  return configurations;
}

/// Whether an engine keeps the promises of conv2d.h: f32 that is f32, sums in f32, the same result every
/// time, and the error of a plain sum (which transformed products do not have).
bool keeps_promises(const Descriptor& configuration, const Problem& problem) {
  const Descriptor engine = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  std::int64_t count = 0;
  BURIN_CUDNN("conv2d", cudnnBackendGetAttribute, configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  BURIN_CUDNN("conv2d", cudnnBackendGetAttribute, engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
              CUDNN_TYPE_NUMERICAL_NOTE, static_cast<std::int64_t>(notes.size()), &count, notes.data());
  return std::none_of(notes.begin(), notes.begin() + count, [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        return problem.dtype == DType::f32 && !problem.allow_tf32;
      case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP: return false;
      default: return true;  // reduced sums, FFT, Winograd, not deterministic
    }
  });
}

}  // namespace

struct CudnnPlan {
  Problem problem;
  Descriptor plan;
  std::size_t workspace_bytes = 0;
};

namespace {

/// The plan of a configuration; without a descriptor if cuDNN cannot make one, or it wants too much
/// workspace.
CudnnPlan make_plan(cudnnHandle_t handle, const Descriptor& configuration, const Problem& problem) {
  CudnnPlan plan{problem, create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), 0};
  set(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
  set(plan.plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  if (cuda::cudnn_api().cudnnBackendFinalize(plan.plan.get()) != CUDNN_STATUS_SUCCESS) {
    cuda::ignore(cuda::api().cudaGetLastError());
    plan.plan = {};
    return plan;
  }
  std::int64_t bytes = 0;
  std::int64_t count = 0;
  BURIN_CUDNN("conv2d", cudnnBackendGetAttribute, plan.plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
              CUDNN_TYPE_INT64, 1, &count, &bytes);
  if (bytes > kMostWorkspaceBytes) plan.plan = {};
  plan.workspace_bytes = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 0));
  return plan;
}

}  // namespace

std::string cudnn_refuses(const Problem& p) {
  const Conv2dParams& params = p.params;
  if (params.padding.top != params.padding.bottom || params.padding.left != params.padding.right)
    return "its padding must be the same on opposite sides";
  if (params.activation.kind != ActivationKind::none && params.activation.kind != ActivationKind::relu)
    return "it fuses no activation but relu";
  if (p.x.count() == 0 || p.w.count() == 0 || p.y.count() == 0) return "it takes no extent of 0";
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (p.x.count() > kMost || p.w.count() > kMost || p.y.count() > kMost)
    return "its kernels index with 32 bits, and a tensor has more than 2^31 - 1 elements";
  return {};
}

std::shared_ptr<const CudnnPlan> cudnn_prepare(Context& ctx, const Problem& problem, bool measure) {
  const cuda::DeviceGuard guard(ctx.device().index, "conv2d");
  const auto handle = static_cast<cudnnHandle_t>(ctx.libraries().cudnn());
  const Graph graph(handle, problem);
  CudnnPlan best;
  double best_ms = 0;
  std::size_t tried = 0;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const Descriptor& configuration : propose(graph.descriptor(), mode)) {
      if (!keeps_promises(configuration, problem)) continue;
      CudnnPlan plan = make_plan(handle, configuration, problem);
      if (!plan.plan) continue;
      if (!measure) return std::make_shared<CudnnPlan>(std::move(plan));
      const double ms = time_ms(
          ctx, problem, plan.workspace_bytes,
          [&](const Operands& operands, void* workspace) { cudnn_run(ctx, plan, operands, workspace); });
      if (!best.plan || ms < best_ms) {
        best = std::move(plan);
        best_ms = ms;
      }
      if (++tried == kMostMeasured) break;
    }
    if (best.plan) return std::make_shared<CudnnPlan>(std::move(best));
  }
  throw UnsupportedError(
      fmt::format("conv2d: cudnn cannot serve this call: it has no engine for it (x {}, w {}, {})", problem.x,
                  problem.w, name(problem.dtype)));
}

std::size_t workspace_bytes(const CudnnPlan& plan) { return plan.workspace_bytes; }

void cudnn_run(Context& ctx, const CudnnPlan& plan, const Operands& operands, void* workspace) {
  const cuda::DeviceGuard guard(ctx.device().index, "conv2d");
  std::array<std::int64_t, 5> uids{kX, kW, kY};
  std::array<const void*, 5> addresses{operands.x, operands.w, operands.y};
  std::size_t count = 3;
  const auto add = [&](std::int64_t uid, const void* address) {
    uids[count] = uid;
    addresses[count++] = address;
  };
  if (plan.problem.has_bias) add(kBias, operands.bias);
  if (plan.problem.has_residual) add(kResidual, operands.residual);

  const Descriptor pack = create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
      std::span<const std::int64_t>(uids.data(), count));
  set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
      std::span<const void* const>(addresses.data(), count));
  set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  finalize(pack);
  BURIN_CUDNN("conv2d", cudnnBackendExecute, static_cast<cudnnHandle_t>(ctx.libraries().cudnn()),
              plan.plan.get(), pack.get());
}

}  // namespace burin::conv2d_impl
