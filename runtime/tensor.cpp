#include <burin/runtime/check.h>
#include <burin/runtime/strided.h>
#include <burin/runtime/tensor.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

namespace burin {
namespace {

/// The lowest and one past the highest element that a view reaches, relative to its first element.
struct Span {
  std::int64_t low = 0;
  std::int64_t high = 0;
};

Span span_of(const Shape& shape, const Strides& strides) {
  Span span{0, 1};
  for (int axis = 0; axis < shape.rank(); ++axis) {
    std::int64_t whole = 0;  // where the axis would go on; checked in empty tensors too, for views compute it
    std::int64_t& side = strides[axis] < 0 ? span.low : span.high;
    BURIN_CHECK(!__builtin_mul_overflow(shape[axis], strides[axis], &whole) &&
                    (shape.count() == 0 || !__builtin_add_overflow(side, whole - strides[axis], &side)),
                ShapeError, "shape {} with strides {} reaches past 63 bits", shape, to_string(strides));
  }
  return shape.count() == 0 ? Span{} : span;
}

bool has_strides(const Shape& shape, const Strides& strides, const Strides& wanted) {
  if (shape.count() == 0) return true;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] != 1 && strides[axis] != wanted[axis]) return false;
  return true;
}

}  // namespace

TensorSpec dense_spec(DType dtype, const Shape& shape, Device device, Layout layout) {
  return {dtype, shape,
          layout == Layout::channels_last ? channels_last_strides(shape) : contiguous_strides(shape), device};
}

Tensor::Tensor(std::shared_ptr<Buffer> buffer, DType dtype, const Shape& shape, const Strides& strides,
               std::int64_t offset)
    : buffer_(std::move(buffer)), spec_{dtype, shape, strides, {}} {
  BURIN_CHECK(buffer_ != nullptr, ShapeError, "tensor: the buffer is null");
  BURIN_CHECK(strides.size() == shape.rank(), ShapeError, "tensor: strides {} do not fit shape {}",
              to_string(strides), shape);
  spec_.device = buffer_->device();
  const Span span = span_of(shape, strides);
  const auto capacity = static_cast<std::int64_t>(buffer_->bytes() / item_bytes(dtype));
  std::int64_t first = 0;
  std::int64_t last = 0;
  const bool inside = !__builtin_add_overflow(offset, span.low, &first) &&
                      !__builtin_add_overflow(offset, span.high, &last) && first >= 0 && last <= capacity;
  BURIN_CHECK(inside, ShapeError,
              "tensor: {} {} with strides {} at offset {} lies outside a buffer of {} bytes", name(dtype),
              shape, to_string(strides), offset, buffer_->bytes());
  if (buffer_->data())
    data_ = static_cast<std::byte*>(buffer_->data()) + offset * static_cast<std::int64_t>(item_bytes(dtype));
}

Tensor Tensor::from_blob(void* data, const Shape& shape, DType dtype, Device device,
                         std::function<void(void*)> deleter) {
  return from_blob(data, shape, contiguous_strides(shape), dtype, device, std::move(deleter));
}

Tensor Tensor::from_blob(void* data, const Shape& shape, const Strides& strides, DType dtype, Device device,
                         std::function<void(void*)> deleter) {
  std::shared_ptr<void> guard(data, [&](void* p) {  // runs the deleter if a check throws
    if (deleter) deleter(p);
  });
  BURIN_CHECK(strides.size() == shape.rank(), ShapeError, "from_blob: strides {} do not fit shape {}",
              to_string(strides), shape);
  const Span span = span_of(shape, strides);
  BURIN_CHECK(span.low == 0, ShapeError, "from_blob: strides {} are negative", to_string(strides));
  BURIN_CHECK(data != nullptr || shape.count() == 0, ShapeError, "from_blob: null data for shape {}", shape);
  BURIN_CHECK(reinterpret_cast<std::uintptr_t>(data) % item_bytes(dtype) == 0, ShapeError,
              "from_blob: the address is not aligned to the {} bytes of {}", item_bytes(dtype), name(dtype));
  std::size_t bytes = 0;
  BURIN_CHECK(!__builtin_mul_overflow(static_cast<std::size_t>(span.high), item_bytes(dtype), &bytes) &&
                  bytes <= static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()),
              ShapeError, "from_blob: {} of {} is too large", shape, name(dtype));
  auto buffer = Buffer::wrap(data, bytes, device, std::exchange(deleter, {}));
  return Tensor(std::move(buffer), dtype, shape, strides);
}

std::size_t Tensor::bytes() const noexcept { return static_cast<std::size_t>(count()) * item_bytes(dtype()); }

void Tensor::record_use(StreamView stream) const {
  BURIN_CHECK(defined(), ShapeError, "record_use: the tensor is undefined");
  buffer_->record_use(stream);
}

void Tensor::require_dtype(DType dtype) const {
  BURIN_CHECK(defined(), ShapeError, "tensor: an undefined tensor has no data");
  BURIN_CHECK(spec_.dtype == dtype, DTypeError, "tensor: data of {} asked of a tensor of {}", name(dtype),
              name(spec_.dtype));
}

bool Tensor::is_dense_in(Layout layout) const {
  if (layout == Layout::channels_last && rank() != 4) return false;
  return has_strides(shape(), strides(), dense_spec(dtype(), shape(), device(), layout).strides);
}

bool Tensor::is_contiguous() const { return is_dense_in(Layout::contiguous); }

bool Tensor::is_channels_last() const { return is_dense_in(Layout::channels_last) && !is_contiguous(); }

bool Tensor::has_internal_overlap() const {
  if (count() <= 1) return false;
  // Sorted by stride, each axis must step past everything that the axes within it reach. This also refuses
  // some exotic views whose elements interleave without meeting; such a view is no useful output.
  int order[kMaxRank];
  int axes = 0;
  for (int axis = 0; axis < rank(); ++axis) {
    if (shape()[axis] == 1) continue;
    int at = axes++;
    for (; at > 0 && strides()[order[at - 1]] > strides()[axis]; --at) order[at] = order[at - 1];
    order[at] = axis;
  }
  std::int64_t reach = 0;
  for (int i = 0; i < axes; ++i) {
    if (strides()[order[i]] <= reach) return true;
    reach += strides()[order[i]] * (shape()[order[i]] - 1);
  }
  return false;
}

Tensor Tensor::view(const Shape& shape, const Strides& strides, std::int64_t offset) const {
  Tensor out = *this;
  out.spec_.shape = shape;
  out.spec_.strides = strides;
  if (out.data_)
    out.data_ = static_cast<std::byte*>(out.data_) + offset * static_cast<std::int64_t>(item_bytes(dtype()));
  return out;
}

Tensor Tensor::reshape(const IntList& extents) const {
  IntList wanted = extents;
  int inferred = -1;
  std::int64_t known = 1;
  for (int axis = 0; axis < wanted.size(); ++axis) {
    if (wanted[axis] == -1) {
      BURIN_CHECK(inferred < 0, ShapeError, "reshape: {} has more than one -1", to_string(extents));
      inferred = axis;
    } else {
      BURIN_CHECK(wanted[axis] >= 0 && !__builtin_mul_overflow(known, wanted[axis], &known), ShapeError,
                  "reshape: {} is not a shape", to_string(extents));
    }
  }
  if (inferred >= 0) {
    BURIN_CHECK(known > 0 && count() % known == 0, ShapeError, "reshape: {} elements do not fit {}", count(),
                to_string(extents));
    wanted[inferred] = count() / known;
  }
  const Shape target(wanted);
  BURIN_CHECK(target.count() == count(), ShapeError, "reshape: shape {} has {} elements and {} has {}",
              shape(), count(), target, target.count());
  if (is_contiguous()) return view(target, contiguous_strides(target), 0);

  // Walk both shapes from the end. A run of source axes that step as one may be cut anew; any other may only
  // be kept.
  Strides strides_out = contiguous_strides(target);
  int to = target.rank() - 1;
  int from = rank() - 1;
  while (from >= 0) {
    std::int64_t step = strides()[from];
    std::int64_t run = shape()[from];
    for (--from; from >= 0 && (shape()[from] == 1 || run == 1 || strides()[from] == step * run); --from) {
      if (run == 1) step = strides()[from];
      run *= shape()[from];
    }
    std::int64_t cut = 1;
    for (; to >= 0 && cut < run; --to) {
      strides_out[to] = step * cut;
      cut *= target[to];
    }
    for (; to >= 0 && target[to] == 1; --to) strides_out[to] = step * cut;
    BURIN_CHECK(cut == run, ShapeError,
                "reshape: {} with strides {} has no view as {}; make it contiguous first", shape(),
                to_string(strides()), target);
  }
  return view(target, strides_out, 0);
}

Tensor Tensor::permute(const IntList& order) const {
  BURIN_CHECK(order.size() == rank(), ShapeError, "permute: order {} does not fit shape {}", to_string(order),
              shape());
  IntList extents = IntList::filled(rank(), 0);
  Strides strides_out = extents;
  unsigned seen = 0;
  for (int i = 0; i < rank(); ++i) {
    BURIN_CHECK(order[i] >= -rank() && order[i] < rank(), ShapeError,
                "permute: {} is not an order of {} axes", to_string(order), rank());
    const int axis = shape().normalize_axis(static_cast<int>(order[i]));
    BURIN_CHECK(!(seen >> axis & 1u), ShapeError, "permute: order {} names an axis twice", to_string(order));
    seen |= 1u << axis;
    extents[i] = shape()[axis];
    strides_out[i] = strides()[axis];
  }
  return view(Shape(extents), strides_out, 0);
}

Tensor Tensor::transpose(int axis_a, int axis_b) const {
  IntList order;
  for (int axis = 0; axis < rank(); ++axis) order.push_back(axis);
  std::swap(order[shape().normalize_axis(axis_a)], order[shape().normalize_axis(axis_b)]);
  return permute(order);
}

Tensor Tensor::slice(int axis, std::int64_t begin, std::int64_t end, std::int64_t step) const {
  axis = shape().normalize_axis(axis);
  BURIN_CHECK(step >= 1, ShapeError, "slice: step {} is less than 1", step);
  const std::int64_t extent = shape()[axis];
  const auto bound = [extent](std::int64_t i) {
    return std::clamp<std::int64_t>(i < 0 ? i + extent : i, 0, extent);
  };
  begin = bound(begin);
  end = std::max(bound(end), begin);
  IntList extents = shape().extents();
  Strides strides_out = strides();
  extents[axis] = begin == end ? 0 : (end - begin - 1) / step + 1;
  // A step past the end of the axis leaves one element, whose stride is never used.
  strides_out[axis] = extents[axis] > 1 ? strides()[axis] * step : strides()[axis];
  return view(Shape(extents), strides_out, extents[axis] == 0 ? 0 : begin * strides()[axis]);
}

Tensor Tensor::select(int axis, std::int64_t index) const {
  axis = shape().normalize_axis(axis);
  const std::int64_t extent = shape()[axis];
  BURIN_CHECK(index >= -extent && index < extent, ShapeError,
              "select: index {} is out of range for axis {} of {}", index, axis, shape());
  if (index < 0) index += extent;
  return slice(axis, index, index + 1).squeeze(axis);
}

Tensor Tensor::expand(const Shape& target) const { return view(target, broadcast_strides(*this, target), 0); }

Tensor Tensor::squeeze() const {
  IntList extents;
  Strides strides_out;
  for (int axis = 0; axis < rank(); ++axis) {
    if (shape()[axis] == 1) continue;
    extents.push_back(shape()[axis]);
    strides_out.push_back(strides()[axis]);
  }
  return view(Shape(extents), strides_out, 0);
}

Tensor Tensor::squeeze(int axis) const {
  axis = shape().normalize_axis(axis);
  BURIN_CHECK(shape()[axis] == 1, ShapeError, "squeeze: axis {} of {} is not 1", axis, shape());
  IntList extents;
  Strides strides_out;
  for (int i = 0; i < rank(); ++i) {
    if (i == axis) continue;
    extents.push_back(shape()[i]);
    strides_out.push_back(strides()[i]);
  }
  return view(Shape(extents), strides_out, 0);
}

Tensor Tensor::unsqueeze(int axis) const {
  BURIN_CHECK(axis >= -rank() - 1 && axis <= rank(), ShapeError,
              "unsqueeze: axis {} is out of range for shape {}", axis, shape());
  if (axis < 0) axis += rank() + 1;
  IntList extents;
  Strides strides_out;
  for (int i = 0; i <= rank(); ++i) {
    if (i == axis) {
      extents.push_back(1);
      strides_out.push_back(i < rank() ? shape()[i] * strides()[i] : 1);
    }
    if (i == rank()) break;
    extents.push_back(shape()[i]);
    strides_out.push_back(strides()[i]);
  }
  return view(Shape(extents), strides_out, 0);
}

Tensor Tensor::flatten(int first, int last) const {
  if (rank() == 0) return reshape({1});
  first = shape().normalize_axis(first);
  last = shape().normalize_axis(last);
  BURIN_CHECK(first <= last, ShapeError, "flatten: axis {} comes after axis {}", first, last);
  IntList extents;
  for (int axis = 0; axis < first; ++axis) extents.push_back(shape()[axis]);
  std::int64_t merged = 1;
  for (int axis = first; axis <= last; ++axis) merged *= shape()[axis];
  extents.push_back(merged);
  for (int axis = last + 1; axis < rank(); ++axis) extents.push_back(shape()[axis]);
  return reshape(extents);
}

Strides broadcast_strides(const Tensor& x, const Shape& shape) {
  const int lead = shape.rank() - x.rank();
  BURIN_CHECK(lead >= 0, ShapeError, "expand: shape {} has fewer axes than {}", shape, x.shape());
  Strides strides = IntList::filled(shape.rank(), 0);
  for (int axis = 0; axis < x.rank(); ++axis) {
    const std::int64_t have = x.shape()[axis];
    const std::int64_t want = shape[lead + axis];
    BURIN_CHECK(have == want || have == 1, ShapeError, "expand: shape {} does not broadcast to {}", x.shape(),
                shape);
    if (have != 1) strides[lead + axis] = x.strides()[axis];
  }
  return strides;
}

bool may_overlap(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || a.device() != b.device() || a.count() == 0 || b.count() == 0)
    return false;
  const auto range = [](const Tensor& x) {
    const Span span = span_of(x.shape(), x.strides());
    const auto item = static_cast<std::int64_t>(item_bytes(x.dtype()));
    const auto first = reinterpret_cast<std::intptr_t>(x.raw());
    return std::pair(first + span.low * item, first + span.high * item);
  };
  const auto [a_begin, a_end] = range(a);
  const auto [b_begin, b_end] = range(b);
  return a_begin < b_end && b_begin < a_end;
}

}  // namespace burin
