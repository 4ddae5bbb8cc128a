#pragma once

#include <burin/runtime/buffer.h>
#include <burin/runtime/device.h>
#include <burin/runtime/dtype.h>
#include <burin/runtime/export.h>
#include <burin/runtime/shape.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace burin {

class Context;

/// Order of a dense 4-d tensor in memory; the logical shape is [N, C, H, W] in both.
enum class Layout : std::uint8_t { contiguous, channels_last };

/// All there is to know of a tensor but its values.
struct TensorSpec {
  DType dtype = DType::f32;
  Shape shape;
  Strides strides;
  Device device;
  bool operator==(const TensorSpec&) const = default;
};

/// A dense, row-major spec, or a channels-last one (rank 4).
BURIN_API TensorSpec dense_spec(DType dtype, const Shape& shape, Device device,
                                Layout layout = Layout::contiguous);

/// A view (shape, strides, offset) of a shared buffer. Copying a Tensor copies the view, never the elements;
/// a default-made Tensor is undefined and stands for "absent". Views share memory and never copy: where
/// strides cannot express one, ShapeError is thrown and contiguous(ctx, x) helps.
class BURIN_API Tensor {
 public:
  Tensor() = default;
  /// For those who hold a buffer. `offset` counts elements. Throws ShapeError if an element would lie outside
  /// it.
  Tensor(std::shared_ptr<Buffer> buffer, DType dtype, const Shape& shape, const Strides& strides,
         std::int64_t offset = 0);

  /// A tensor over the caller's memory. `deleter` runs once when the last view is gone and the streams of
  /// record_use() are done with it (see Buffer::wrap), also if this call throws. Memory of a device has no
  /// stream of its own: every stream that uses it must be recorded before the last view goes.
  static Tensor from_blob(void* data, const Shape& shape, DType dtype, Device device = Device::cpu(),
                          std::function<void(void*)> deleter = {});
  static Tensor from_blob(void* data, const Shape& shape, const Strides& strides, DType dtype,
                          Device device = Device::cpu(), std::function<void(void*)> deleter = {});

  bool defined() const noexcept { return buffer_ != nullptr; }
  DType dtype() const noexcept { return spec_.dtype; }
  const Shape& shape() const noexcept { return spec_.shape; }
  const Strides& strides() const noexcept { return spec_.strides; }
  Device device() const noexcept { return spec_.device; }
  const TensorSpec& spec() const noexcept { return spec_; }
  int rank() const noexcept { return spec_.shape.rank(); }
  std::int64_t extent(int axis) const { return spec_.shape.extent(axis); }
  std::int64_t count() const noexcept { return spec_.shape.count(); }
  /// Bytes of the elements, count() * item_bytes(dtype()).
  std::size_t bytes() const noexcept;
  const std::shared_ptr<Buffer>& buffer() const noexcept { return buffer_; }
  /// Tells the memory that work queued on `stream` uses it. Once the last tensor is gone, it is not handed
  /// out again before everything queued there by then has finished; nothing waits, and nothing is kept alive
  /// for longer. Needed for work on other streams than the one the tensor was allocated on (that of its
  /// context), unless that one waits for them. As PyTorch's record_stream. Thread-safe. Throws ShapeError if
  /// the tensor is undefined.
  void record_use(StreamView stream) const;

  /// Address of the first element, on its device; null if the tensor is undefined.
  void* raw() noexcept { return data_; }
  const void* raw() const noexcept { return data_; }
  /// The same, typed; throws DTypeError if T is another element type.
  template <class T>
  T* data() {
    require_dtype(dtype_of<T>());
    return static_cast<T*>(data_);
  }
  template <class T>
  const T* data() const {
    require_dtype(dtype_of<T>());
    return static_cast<const T*>(data_);
  }

  /// Dense in that order. Strides of extents 1, and all strides of an empty tensor, do not matter, so both
  /// orders may fit.
  bool is_dense_in(Layout layout) const;
  /// Dense and row-major: is_dense_in(Layout::contiguous).
  bool is_contiguous() const;
  /// Dense [N, C, H, W] with the channels innermost, and not also contiguous: where both orders fit (C = 1,
  /// or H = W = 1) the answer is no. This is the one place that decides layout.
  bool is_channels_last() const;
  Layout layout() const { return is_channels_last() ? Layout::channels_last : Layout::contiguous; }
  /// Two indices share one element (a stride of 0 over an extent above 1, or strides that cross): not a valid
  /// output.
  bool has_internal_overlap() const;

  // Views.

  /// The same elements in row-major order under another shape; one extent may be -1 and is inferred.
  Tensor reshape(const IntList& extents) const;
  Tensor reshape(std::initializer_list<std::int64_t> extents) const { return reshape(IntList(extents)); }
  /// Axis i of the result is axis order[i] of this.
  Tensor permute(const IntList& order) const;
  Tensor transpose(int axis_a, int axis_b) const;
  /// Elements begin, begin + step, ... below end of one axis. Negative bounds count from the end; bounds are
  /// clamped; step >= 1.
  Tensor slice(int axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1) const;
  /// One index of an axis, which is dropped.
  Tensor select(int axis, std::int64_t index) const;
  /// Repeats extents of 1 (and new leading axes) by a stride of 0.
  Tensor expand(const Shape& shape) const;
  /// Drops axes of extent 1: all of them, or one.
  Tensor squeeze() const;
  Tensor squeeze(int axis) const;
  /// Adds an axis of extent 1.
  Tensor unsqueeze(int axis) const;
  /// Merges axes first..last into one.
  Tensor flatten(int first = 0, int last = -1) const;

 private:
  void require_dtype(DType dtype) const;
  Tensor view(const Shape& shape, const Strides& strides, std::int64_t offset) const;

  std::shared_ptr<Buffer> buffer_;
  TensorSpec spec_;
  void* data_ = nullptr;
};

/// True if the memory ranges that two tensors span intersect.
BURIN_API bool may_overlap(const Tensor& a, const Tensor& b);

// Factories: on the context's device, from its memory resource, in the order of its stream.

BURIN_API Tensor empty(Context& ctx, const Shape& shape, DType dtype = DType::f32,
                       Layout layout = Layout::contiguous);
BURIN_API Tensor zeros(Context& ctx, const Shape& shape, DType dtype = DType::f32);
BURIN_API Tensor full(Context& ctx, const Shape& shape, double value, DType dtype = DType::f32);
/// begin, begin + step, ... (count values); each is computed as begin + i * step in f64, then converted.
BURIN_API Tensor arange(Context& ctx, std::int64_t count, double begin = 0, double step = 1,
                        DType dtype = DType::f32);
/// Copies host elements, which may be released at return. Throws ShapeError unless there are as many as the
/// shape has.
BURIN_API Tensor from_host_bytes(Context& ctx, const void* values, std::size_t bytes, const Shape& shape,
                                 DType dtype);
template <class T>
Tensor from_host(Context& ctx, std::span<const T> values, const Shape& shape) {
  return from_host_bytes(ctx, values.data(), values.size_bytes(), shape, dtype_of<T>());
}
template <class T>
Tensor from_host(Context& ctx, const std::vector<T>& values, const Shape& shape) {
  return from_host(ctx, std::span<const T>(values), shape);
}
/// The elements in row-major order, on the host; waits for the context's stream.
template <class T>
std::vector<T> to_vector(Context& ctx, const Tensor& x);

}  // namespace burin
