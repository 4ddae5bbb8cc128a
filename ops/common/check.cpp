#include <burin/ops/common/check.h>

namespace burin::ops {
namespace {

void check_is_as_expected(std::string_view op, const Tensor& out, const TensorSpec& expected) {
  BURIN_CHECK(out.defined(), ShapeError, "{}: the output is undefined", op);
  BURIN_CHECK(out.device() == expected.device, DeviceError, "{}: the output is on {} and must be on {}", op,
              name(out.device()), name(expected.device));
  BURIN_CHECK(out.dtype() == expected.dtype, DTypeError, "{}: the output is {} and must be {}", op,
              name(out.dtype()), name(expected.dtype));
  BURIN_CHECK(out.shape() == expected.shape, ShapeError, "{}: the output has shape {} and must have {}", op,
              out.shape(), expected.shape);
  BURIN_CHECK(!out.has_internal_overlap(), ShapeError,
              "{}: the output has internal overlap (strides {} of shape {})", op, to_string(out.strides()),
              out.shape());
}

}  // namespace

void check_device(std::string_view op, const Context& ctx, std::initializer_list<NamedTensor> tensors) {
  for (const auto& [label, tensor] : tensors) {
    BURIN_CHECK(tensor.defined(), ShapeError, "{}: {} is undefined", op, label);
    BURIN_CHECK(tensor.device() == ctx.device(), DeviceError, "{}: {} is on {}, the context on {}", op, label,
                name(tensor.device()), name(ctx.device()));
  }
}

void check_same_dtype(std::string_view op, std::initializer_list<NamedTensor> tensors) {
  const NamedTensor& first = *tensors.begin();
  for (const auto& [label, tensor] : tensors)
    BURIN_CHECK(tensor.dtype() == first.tensor.dtype(), DTypeError, "{}: {} is {}, {} is {}", op, first.name,
                name(first.tensor.dtype()), label, name(tensor.dtype()));
}

void check_float_dtype(std::string_view op, const NamedTensor& x) {
  const DType dtype = x.tensor.dtype();
  BURIN_CHECK(dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16, DTypeError,
              "{}: {} is {} and must be f32, f16 or bf16", op, x.name, name(dtype));
}

bool is_same_view(const Tensor& a, const Tensor& b) {
  if (a.raw() != b.raw() || a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  for (int axis = 0; axis < a.rank(); ++axis)
    if (a.shape()[axis] > 1 && a.strides()[axis] != b.strides()[axis]) return false;
  return true;
}

void check_output(std::string_view op, const Tensor& out, const TensorSpec& expected,
                  std::initializer_list<NamedTensor> inputs) {
  check_is_as_expected(op, out, expected);
  BURIN_CHECK(out.is_dense_in(Layout::contiguous) || out.is_dense_in(Layout::channels_last), ShapeError,
              "{}: the output must be dense; it has strides {} of shape {}", op, to_string(out.strides()),
              out.shape());
  for (const auto& [label, tensor] : inputs)
    BURIN_CHECK(!may_overlap(out, tensor), ShapeError, "{}: the output aliases {}", op, label);
}

void check_elementwise_output(std::string_view op, const Tensor& out, const TensorSpec& expected,
                              std::initializer_list<NamedTensor> inputs) {
  check_is_as_expected(op, out, expected);
  for (const auto& [label, tensor] : inputs) {
    BURIN_CHECK(is_same_view(out, tensor) || !may_overlap(out, tensor), ShapeError,
                "{}: the output aliases {}", op, label);
  }
}

Backend choose(std::string_view op, const Context& ctx, std::initializer_list<Candidate> libraries) {
  if (ctx.device().is_cpu()) return Backend::cpu;
  const Backend preferred = ctx.preferred();
  if (preferred == Backend::cuda) return preferred;
  for (const Candidate& library : libraries) {
    if (preferred == Backend::automatic ? library.serves : preferred == library.backend) {
      BURIN_CHECK(library.serves, UnsupportedError, "{}: {} cannot serve this call: {}", op,
                  name(library.backend), library.reason);
      return library.backend;
    }
  }
  return Backend::cuda;
}

}  // namespace burin::ops
