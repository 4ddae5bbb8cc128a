#include <burin/runtime/allocate.h>
#include <burin/runtime/check.h>
#include <burin/runtime/config.h>
#include <burin/runtime/context.h>
#include <burin/runtime/convert.h>
#include <burin/runtime/copy.h>
#include <burin/runtime/cpu/thread_pool.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/dispatch.h>
#include <burin/runtime/tensor.h>

#include <algorithm>
#include <utility>

namespace burin {

Tensor allocate(std::string_view op, std::shared_ptr<MemoryResource> resource, StreamView stream,
                const TensorSpec& spec) {
  std::size_t bytes = 0;
  BURIN_CHECK(
      !__builtin_mul_overflow(static_cast<std::size_t>(spec.shape.count()), item_bytes(spec.dtype), &bytes),
      ShapeError, "{}: {} of {} is too large", op, spec.shape, name(spec.dtype));
  return Tensor(Buffer::allocate(std::move(resource), bytes, stream), spec.dtype, spec.shape, spec.strides);
}

Tensor allocate_host(std::string_view op, const TensorSpec& spec) {
  const Stream stream(Device::cpu());
  return allocate(op, make_cpu_resource(), stream, spec);
}

Tensor empty(Context& ctx, const Shape& shape, DType dtype, Layout layout) {
  return allocate("empty", ctx.memory(), ctx.stream(), dense_spec(dtype, shape, ctx.device(), layout));
}

Tensor zeros(Context& ctx, const Shape& shape, DType dtype) { return full(ctx, shape, 0, dtype); }

Tensor full(Context& ctx, const Shape& shape, double value, DType dtype) {
  Tensor out = empty(ctx, shape, dtype);
  if (out.count() == 0) return out;
  if constexpr (kHasCuda) {
    if (ctx.device().is_cuda()) {
      cuda::fill(ctx.stream(), dtype, out.raw(), out.count(), value);
      return out;
    }
  }
  with_any_dtype(dtype, "full",
                 [&]<class T>() { std::fill_n(out.data<T>(), out.count(), convert<T>(value)); });
  return out;
}

Tensor arange(Context& ctx, std::int64_t count, double begin, double step, DType dtype) {
  Tensor out = empty(ctx, Shape{count}, dtype);
  if (count == 0) return out;
  if constexpr (kHasCuda) {
    if (ctx.device().is_cuda()) {
      cuda::arange(ctx.stream(), dtype, out.raw(), count, begin, step);
      return out;
    }
  }
  with_any_dtype(dtype, "arange", [&]<class T>() {
    T* data = out.data<T>();
    for (std::int64_t i = 0; i < count; ++i) data[i] = convert<T>(begin + static_cast<double>(i) * step);
  });
  return out;
}

Tensor from_host_bytes(Context& ctx, const void* values, std::size_t bytes, const Shape& shape, DType dtype) {
  BURIN_CHECK(
      static_cast<std::size_t>(shape.count()) == bytes / item_bytes(dtype) && bytes % item_bytes(dtype) == 0,
      ShapeError, "from_host: {} bytes are not the {} elements of {} {}", bytes, shape.count(), name(dtype),
      shape);
  Tensor out = empty(ctx, shape, dtype);
  if (bytes == 0) return out;
  // As bytes, whose address need not be aligned. The view is borrowed: copy() has read it when it returns.
  const Shape as_bytes{static_cast<std::int64_t>(bytes)};
  Tensor raw(out.buffer(), DType::u8, as_bytes, {1});
  copy(ctx, raw, Tensor::from_blob(const_cast<void*>(values), as_bytes, DType::u8));
  return out;
}

template <class T>
std::vector<T> to_vector(Context& ctx, const Tensor& x) {
  const Tensor host = contiguous(ctx, to(ctx, x, Device::cpu()));
  const T* data = host.data<T>();
  return std::vector<T>(data, data + host.count());
}

template BURIN_API std::vector<float> to_vector(Context&, const Tensor&);
template BURIN_API std::vector<f16> to_vector(Context&, const Tensor&);
template BURIN_API std::vector<bf16> to_vector(Context&, const Tensor&);
template BURIN_API std::vector<double> to_vector(Context&, const Tensor&);
template BURIN_API std::vector<std::int8_t> to_vector(Context&, const Tensor&);
template BURIN_API std::vector<std::uint8_t> to_vector(Context&, const Tensor&);
template BURIN_API std::vector<std::int32_t> to_vector(Context&, const Tensor&);
template BURIN_API std::vector<std::int64_t> to_vector(Context&, const Tensor&);
template BURIN_API std::vector<bool> to_vector(Context&, const Tensor&);

}  // namespace burin
