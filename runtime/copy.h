#pragma once

#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>
#include <burin/runtime/transfer.h>

namespace burin {

class Context;

/// Copies src into dst element by element, converting the element type (floating to integer truncates toward
/// zero and saturates; NaN becomes 0; f16 and bf16 round to nearest even) and reading and writing any
/// strides. src must broadcast to dst's shape. Either may be on the host or on the context's device. Ordered
/// by the context's stream; returns when the host may touch both again if either is pageable host memory, and
/// at once if not. Throws ShapeError (also if dst overlaps itself or src), DeviceError.
BURIN_API void copy(Context& ctx, Tensor& dst, const Tensor& src);

/// As copy, but never waits: a host tensor must be pinned (empty_pinned), and across devices both must be
/// dense, of one layout and dtype; else UnsupportedError. Both tensors may go before the copy has run: their
/// memory is not used for anything else until it has. But the host may read a pinned dst, or overwrite a
/// pinned src, only after the transfer:
///
///     Transfer transfer = copy_async(ctx, host, result);
///     ...                                // what the host can do meanwhile
///     transfer.wait();
///     use(host.data<float>());           // not before
BURIN_API Transfer copy_async(Context& ctx, Tensor& dst, const Tensor& src);

/// x itself if it is already so, else a copy. On a CUDA context these also move host tensors to the device.
BURIN_API Tensor to(Context& ctx, const Tensor& x, DType dtype);
BURIN_API Tensor to(Context& ctx, const Tensor& x, Layout layout);
/// `device` is the context's device or the CPU; a copy to the CPU has finished at return.
BURIN_API Tensor to(Context& ctx, const Tensor& x, Device device);
/// A tensor whose elements arrive with its transfer.
struct AsyncTensor {
  Tensor tensor;
  Transfer transfer;
};
/// As to(ctx, x, device), but never waits; what PyTorch writes as x.to(device, non_blocking=True). A result
/// on the CPU is pinned (from ctx.pinned()), and the host may read it only after transfer.wait(). A host x
/// must be pinned and dense (else UnsupportedError), and not be overwritten before the transfer is done.
///
///     auto [logits, transfer] = to_async(ctx, y, Device::cpu());
///     transfer.wait();
BURIN_API AsyncTensor to_async(Context& ctx, const Tensor& x, Device device);
/// x itself if it is row-major and dense, else a copy that is; on x's own device, which is the context's or
/// the CPU.
BURIN_API Tensor contiguous(Context& ctx, const Tensor& x);
/// Always a new tensor, row-major.
BURIN_API Tensor clone(Context& ctx, const Tensor& x);
/// An uninitialised, page-locked host tensor for asynchronous copies, from ctx.pinned(). Throws DeviceError
/// where CUDA cannot be used.
BURIN_API Tensor empty_pinned(Context& ctx, const Shape& shape, DType dtype = DType::f32);

}  // namespace burin
