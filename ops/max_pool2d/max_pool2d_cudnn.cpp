#include <burin/ops/max_pool2d/max_pool2d_impl.h>
#include <burin/runtime/cuda/cudnn_api.h>
#include <burin/runtime/cuda/device_guard.h>
#include <burin/runtime/cuda/libraries.h>
#include <burin/runtime/cuda/unique_handle.h>
#include <burin/runtime/plan_cache.h>

namespace burin::max_pool2d_impl {
namespace {

constexpr const char* kOp = "max_pool2d";

struct DestroyTensor {
  void operator()(cudnnTensorDescriptor_t raw) const noexcept {
    cuda::cudnn_api().cudnnDestroyTensorDescriptor(raw);
  }
};
struct DestroyPooling {
  void operator()(cudnnPoolingDescriptor_t raw) const noexcept {
    cuda::cudnn_api().cudnnDestroyPoolingDescriptor(raw);
  }
};
using TensorDescriptor = UniqueHandle<cudnnTensorDescriptor_t, DestroyTensor>;
using PoolingDescriptor = UniqueHandle<cudnnPoolingDescriptor_t, DestroyPooling>;

struct Plan {
  TensorDescriptor x, y;
  PoolingDescriptor pooling;
};

TensorDescriptor describe(DType dtype, const Shape& shape, Layout layout) {
  cudnnTensorDescriptor_t raw = nullptr;
  BURIN_CUDNN(kOp, cudnnCreateTensorDescriptor, &raw);
  TensorDescriptor descriptor(raw);
  const cudnnDataType_t type = dtype == DType::f32   ? CUDNN_DATA_FLOAT
                               : dtype == DType::f16 ? CUDNN_DATA_HALF
                                                     : CUDNN_DATA_BFLOAT16;
  const Strides strides =
      layout == Layout::channels_last ? channels_last_strides(shape) : contiguous_strides(shape);
  const auto extent = [&](int axis) { return static_cast<int>(shape[axis]); };
  const auto stride = [&](int axis) { return static_cast<int>(strides[axis]); };
  BURIN_CUDNN(kOp, cudnnSetTensor4dDescriptorEx, raw, type, extent(0), extent(1), extent(2), extent(3),
              stride(0), stride(1), stride(2), stride(3));
  return descriptor;
}

PoolingDescriptor describe(const Pool2d<std::int64_t>& p) {
  cudnnPoolingDescriptor_t raw = nullptr;
  BURIN_CUDNN(kOp, cudnnCreatePoolingDescriptor, &raw);
  PoolingDescriptor descriptor(raw);
  const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
  BURIN_CUDNN(kOp, cudnnSetPooling2dDescriptor, raw, CUDNN_POOLING_MAX_DETERMINISTIC, CUDNN_PROPAGATE_NAN,
              narrow(p.h.kernel), narrow(p.w.kernel), narrow(p.h.before), narrow(p.w.before),
              narrow(p.h.stride), narrow(p.w.stride));
  return descriptor;
}

}  // namespace

void cudnn(Context& ctx, const Problem& problem, const Tensor& x, Tensor& y) {
  const cuda::DeviceGuard guard(ctx.device().index, kOp);
  const Pool2d<std::int64_t>& p = problem.pool;
  PlanKey key("max_pool2d cudnn");
  key.add(x.dtype(), problem.layout, x.shape().extents(), y.shape().extents());
  for (const PoolAxis<std::int64_t>* axis : {&p.h, &p.w}) key.add(axis->kernel, axis->stride, axis->before);
  const std::shared_ptr<const Plan> plan = ctx.plans().find_or_make<Plan>(key, [&] {
    return Plan{describe(x.dtype(), x.shape(), problem.layout),
                describe(y.dtype(), y.shape(), problem.layout), describe(p)};
  });
  const float one = 1.0f;
  const float zero = 0.0f;
  BURIN_CUDNN(kOp, cudnnPoolingForward, static_cast<cudnnHandle_t>(ctx.libraries().cudnn()),
              plan->pooling.get(), &one, plan->x.get(), x.raw(), &zero, plan->y.get(), y.raw());
}

}  // namespace burin::max_pool2d_impl
