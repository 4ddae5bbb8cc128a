#include <burin/ops/common/check.h>
#include <burin/ops/concat/concat.h>

#include <vector>

namespace burin {
namespace {

void check_parts(const Context& ctx, std::span<const Tensor> parts) {
  BURIN_CHECK(!parts.empty(), ShapeError, "concat: there must be one part or more");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string label = fmt::format("part {}", i);
    ops::check_device("concat", ctx, {{label, parts[i]}});
    ops::check_same_dtype("concat", {{"part 0", parts[0]}, {label, parts[i]}});
  }
}

/// Parts for which both orders fit go along with the others.
Layout output_layout(std::span<const Tensor> parts) {
  bool any = false;
  for (const Tensor& part : parts) {
    if (!part.is_dense_in(Layout::channels_last)) return Layout::contiguous;
    any = any || part.is_channels_last();
  }
  return any ? Layout::channels_last : Layout::contiguous;
}

}  // namespace

Shape ConcatParams::output_shape(std::span<const Tensor> parts) const {
  BURIN_CHECK(!parts.empty(), ShapeError, "concat: there must be one part or more");
  const Shape& first = parts[0].shape();
  BURIN_CHECK(axis >= -first.rank() && axis < first.rank(), ShapeError,
              "concat: axis {} is out of range for shape {}", axis, first);
  const int along = first.normalize_axis(axis);
  IntList extents = first.extents();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const Shape& shape = parts[i].shape();
    bool fits = shape.rank() == first.rank();
    for (int k = 0; fits && k < first.rank(); ++k) fits = k == along || shape[k] == first[k];
    BURIN_CHECK(fits, ShapeError, "concat: shape {} of part {} must equal {} of part 0 outside axis {}",
                shape, i, first, along);
    BURIN_CHECK(!__builtin_add_overflow(extents[along], shape[along], &extents[along]), ShapeError,
                "concat: the extents of axis {} add up to more than 63 bits", along);
  }
  return Shape(extents);
}

Tensor concat(Context& ctx, std::span<const Tensor> parts, const ConcatParams& params) {
  check_parts(ctx, parts);
  Tensor y = empty(ctx, params.output_shape(parts), parts[0].dtype(), output_layout(parts));
  concat_into(ctx, y, parts, params);
  return y;
}

void concat_into(Context& ctx, Tensor& y, std::span<const Tensor> parts, const ConcatParams& params) {
  std::vector<const Tensor*> inputs;
  for (const Tensor& part : parts) inputs.push_back(&part);
  const OpScope scope(ctx, "concat", inputs, y);
  check_parts(ctx, parts);
  const TensorSpec expected = dense_spec(parts[0].dtype(), params.output_shape(parts), ctx.device());
  for (std::size_t i = 0; i < parts.size(); ++i)
    ops::check_output("concat", y, expected, {{fmt::format("part {}", i), parts[i]}});
  const int axis = y.shape().normalize_axis(params.axis);
  std::int64_t begin = 0;
  for (const Tensor& part : parts) {
    const std::int64_t end = begin + part.shape()[axis];
    Tensor slice = y.slice(axis, begin, end);
    copy(ctx, slice, part);
    begin = end;
  }
}

}  // namespace burin
