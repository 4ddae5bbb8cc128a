#include <burin/runtime/allocate.h>
#include <burin/runtime/check.h>
#include <burin/runtime/config.h>
#include <burin/runtime/context.h>
#include <burin/runtime/convert.h>
#include <burin/runtime/copy.h>
#include <burin/runtime/cpu/thread_pool.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/dispatch.h>
#include <burin/runtime/op_scope.h>
#include <burin/runtime/strided.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace burin {
namespace {

constexpr std::int64_t kGrain = 1 << 15;  // elements: below this a second thread costs more than it saves

StridedLoop<2> copy_loop(const Tensor& dst, const Tensor& src) {
  return make_strided_loop<2>(dst.shape(), {dst.strides(), broadcast_strides(src, dst.shape())});
}

template <class To, class From>
void copy_strided_host(ThreadPool& threads, To* dst, const From* src, const StridedLoop<2>& loop) {
  const std::int64_t dst_step = loop.strides[0][loop.rank - 1];
  const std::int64_t src_step = loop.strides[1][loop.rank - 1];
  const auto copy_run = [=](const std::array<std::int64_t, 2>& offsets, std::int64_t count) {
    To* to = dst + offsets[0];
    const From* from = src + offsets[1];
    if (dst_step == 1 && src_step == 1) {
      if constexpr (std::is_same_v<To, From>)
        std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(To));
      else
        for (std::int64_t i = 0; i < count; ++i) to[i] = convert<To>(from[i]);
    } else {
      for (std::int64_t i = 0; i < count; ++i) to[i * dst_step] = convert<To>(from[i * src_step]);
    }
  };
  threads.for_ranges(loop.count, kGrain,
                     [&](std::int64_t begin, std::int64_t end) { for_each_run(loop, begin, end, copy_run); });
}

void copy_host(Context& ctx, Tensor& dst, const Tensor& src) {
  const StridedLoop<2> loop = copy_loop(dst, src);
  with_any_dtype(dst.dtype(), "copy", [&]<class To>() {
    with_any_dtype(src.dtype(), "copy", [&]<class From>() {
      copy_strided_host(ctx.threads(), dst.data<To>(), src.data<From>(), loop);
    });
  });
}

bool is_plain(const Tensor& dst, const Tensor& src) {
  const StridedLoop<2> loop = copy_loop(dst, src);
  return dst.dtype() == src.dtype() && loop.rank == 1 && loop.strides[0][0] == 1 && loop.strides[1][0] == 1;
}

void check_copy(const char* op, const Context& ctx, const Tensor& dst, const Tensor& src) {
  BURIN_CHECK(dst.defined() && src.defined(), ShapeError, "{}: {} is undefined", op,
              dst.defined() ? "src" : "dst");
  for (const Tensor* x : {&dst, &src})
    BURIN_CHECK(x->device().is_cpu() || x->device() == ctx.device(), DeviceError,
                "{}: a tensor is on {}, the context on {}", op, name(x->device()), name(ctx.device()));
  BURIN_CHECK(broadcast(op, dst.shape(), src.shape()) == dst.shape(), ShapeError,
              "{}: src {} does not broadcast to dst {}", op, src.shape(), dst.shape());
  BURIN_CHECK(!dst.has_internal_overlap(), ShapeError, "{}: dst overlaps itself (strides {} of shape {})", op,
              to_string(dst.strides()), dst.shape());
}

/// An uninitialised tensor on the context's device or, for a CUDA context, also on the host.
Tensor empty_as(Context& ctx, const TensorSpec& spec) {
  if (spec.device == ctx.device()) return allocate("copy", ctx.memory(), ctx.stream(), spec);
  return allocate_host("copy", spec);
}

Tensor empty_like_on(Context& ctx, Device device, const Tensor& x, DType dtype) {
  return empty_as(ctx, dense_spec(dtype, x.shape(), device, x.layout()));
}

#if defined(BURIN_WITH_CUDA)
/// Queues the copy where at least one side is on the device. Temporaries live until the work is done.
void copy_cuda(Context& ctx, Tensor& dst, const Tensor& src) {
  const StreamView stream = ctx.stream();
  if (dst.device().is_cuda() && src.device().is_cuda()) {
    if (is_plain(dst, src))
      cuda::copy_bytes(stream, dst.raw(), src.raw(), src.bytes());
    else
      cuda::copy_strided(stream, dst.dtype(), dst.raw(), src.dtype(), src.raw(), copy_loop(dst, src));
  } else if (is_plain(dst, src)) {
    cuda::copy_bytes(stream, dst.raw(), src.raw(), src.bytes());
  } else if (dst.device().is_cuda()) {  // a dense image of src crosses, and the device spreads it
    Tensor dense = empty_like_on(ctx, Device::cpu(), src, src.dtype());
    copy_host(ctx, dense, src);
    Tensor landed = empty(ctx, src.shape(), src.dtype(), src.layout());
    cuda::copy_bytes(stream, landed.raw(), dense.raw(), dense.bytes());
    stream.synchronize();
    copy_cuda(ctx, dst, landed);
  } else {  // the device makes src dense, then that crosses, and the host spreads it
    Tensor dense = empty(ctx, src.shape(), src.dtype(), src.layout());
    copy_cuda(ctx, dense, src);
    Tensor landed = empty_like_on(ctx, Device::cpu(), src, src.dtype());
    cuda::copy_bytes(stream, landed.raw(), dense.raw(), dense.bytes());
    stream.synchronize();
    copy_host(ctx, dst, landed);
  }
}
#endif

bool is_of_kind(MemoryKind kind, const Tensor& dst, const Tensor& src) {
  return dst.buffer()->kind() == kind || src.buffer()->kind() == kind;
}

Tensor empty_pinned_as(const char* op, Context& ctx, const TensorSpec& spec) {
  return allocate(op, ctx.pinned(), ctx.host_stream(), spec);
}

void check_moves_to(const char* op, const Context& ctx, const Tensor& x, Device device) {
  BURIN_CHECK(x.defined(), ShapeError, "{}: the tensor is undefined", op);
  BURIN_CHECK(x.device() == device || device.is_cpu() || device == ctx.device(), DeviceError,
              "{}: {} is not the context's device ({})", op, name(device), name(ctx.device()));
}

}  // namespace

void copy(Context& ctx, Tensor& dst, const Tensor& src) {
  const OpScope scope(ctx, "copy", {&src}, dst);
  check_copy("copy", ctx, dst, src);
  if (dst.count() == 0) return;
  if (dst.raw() == src.raw() && dst.spec() == src.spec()) return;
  BURIN_CHECK(!may_overlap(dst, src), ShapeError, "copy: dst overlaps src");
#if defined(BURIN_WITH_CUDA)
  if (dst.device().is_cuda() || src.device().is_cuda()) {
    for (const Tensor* x : {static_cast<const Tensor*>(&dst), &src})
      if (x->buffer()->kind() == MemoryKind::pinned) x->record_use(ctx.stream());
    copy_cuda(ctx, dst, src);
    if (is_of_kind(MemoryKind::host, dst, src)) ctx.synchronize();
    return;
  }
#endif
  copy_host(ctx, dst, src);
}

Transfer copy_async(Context& ctx, Tensor& dst, const Tensor& src) {
  check_copy("copy_async", ctx, dst, src);
  BURIN_CHECK(ctx.device().is_cpu() || !is_of_kind(MemoryKind::host, dst, src), UnsupportedError,
              "copy_async: a host tensor must be pinned (empty_pinned), or use copy");
  BURIN_CHECK(dst.device() == src.device() || is_plain(dst, src), UnsupportedError,
              "copy_async: across devices both tensors must be dense, of one layout and dtype; src is {} {}, "
              "dst {} {}",
              name(src.dtype()), src.shape(), name(dst.dtype()), dst.shape());
  if (dst.device().is_cpu() && src.device().is_cpu()) {
    copy(ctx, dst, src);
    return {};
  }
  const auto done = std::make_shared<Event>(ctx.device(), EventOptions{.timing = false});
  dst.record_use(ctx.stream());
  src.record_use(ctx.stream());
  copy(ctx, dst, src);
  done->record(ctx.stream());
  return Transfer(done);
}

Tensor to(Context& ctx, const Tensor& x, DType dtype) {
  BURIN_CHECK(x.defined(), ShapeError, "to: the tensor is undefined");
  if (x.dtype() == dtype) return x;
  Tensor out = empty_like_on(ctx, x.device(), x, dtype);
  copy(ctx, out, x);
  return out;
}

Tensor to(Context& ctx, const Tensor& x, Layout layout) {
  BURIN_CHECK(x.defined(), ShapeError, "to: the tensor is undefined");
  if (x.is_dense_in(layout)) return x;
  Tensor out = empty_as(ctx, dense_spec(x.dtype(), x.shape(), x.device(), layout));
  copy(ctx, out, x);
  return out;
}

Tensor to(Context& ctx, const Tensor& x, Device device) {
  check_moves_to("to", ctx, x, device);
  if (x.device() == device) return x;
  Tensor out = empty_like_on(ctx, device, x, x.dtype());
  copy(ctx, out, x);
  return out;
}

AsyncTensor to_async(Context& ctx, const Tensor& x, Device device) {
  check_moves_to("to_async", ctx, x, device);
  if (x.device() == device) return {x, {}};
  if (device.is_cuda()) {
    Tensor out = empty_like_on(ctx, device, x, x.dtype());
    const Transfer transfer = copy_async(ctx, out, x);
    return {std::move(out), transfer};
  }
  const Tensor dense = x.is_dense_in(x.layout()) ? x : clone(ctx, x);  // packed by the device
  Tensor out = empty_pinned_as("to_async", ctx, dense_spec(x.dtype(), x.shape(), device, dense.layout()));
  const Transfer transfer = copy_async(ctx, out, dense);
  return {std::move(out), transfer};
}

Tensor contiguous(Context& ctx, const Tensor& x) {
  BURIN_CHECK(x.defined(), ShapeError, "contiguous: the tensor is undefined");
  return x.is_contiguous() ? x : clone(ctx, x);
}

Tensor clone(Context& ctx, const Tensor& x) {
  BURIN_CHECK(x.defined(), ShapeError, "clone: the tensor is undefined");
  Tensor out = empty_as(ctx, dense_spec(x.dtype(), x.shape(), x.device()));
  copy(ctx, out, x);
  return out;
}

Tensor empty_pinned(Context& ctx, const Shape& shape, DType dtype) {
  return empty_pinned_as("empty_pinned", ctx, dense_spec(dtype, shape, Device::cpu()));
}

}  // namespace burin
