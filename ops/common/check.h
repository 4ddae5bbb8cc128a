#pragma once
// Private: the checks and choices that every operator's front (ops/<op>/<op>.cpp) shares.

#include <burin/runtime/check.h>
#include <burin/runtime/config.h>
#include <burin/runtime/context.h>
#include <burin/runtime/copy.h>
#include <burin/runtime/op_scope.h>
#include <burin/runtime/tensor.h>

#include <initializer_list>
#include <string_view>

namespace burin::ops {

/// A tensor and what the operator's documentation calls it.
struct NamedTensor {
  std::string_view name;
  const Tensor& tensor;
};

/// Every tensor must be defined and on the context's device. Throws ShapeError or DeviceError.
void check_device(std::string_view op, const Context& ctx, std::initializer_list<NamedTensor> tensors);
/// Every tensor must have the first one's dtype. Throws DTypeError.
void check_same_dtype(std::string_view op, std::initializer_list<NamedTensor> tensors);

/// The tensor must be f32, f16 or bf16. Throws DTypeError.
void check_float_dtype(std::string_view op, const NamedTensor& tensor);

/// Each index of one is the same element of the other; strides of extents 1 do not matter.
bool is_same_view(const Tensor& a, const Tensor& b);

/// `out`, which the caller brought, must be as `expected` says in dtype, shape and device; dense, row-major
/// or channels-last; and must not overlap itself or any input. Throws ShapeError, DTypeError, DeviceError.
void check_output(std::string_view op, const Tensor& out, const TensorSpec& expected,
                  std::initializer_list<NamedTensor> inputs);

/// The same for operators that read an element before they write it: any strides that do not overlap, and an
/// input may be the output itself (same address, dtype, shape and strides), but not overlap it otherwise.
void check_elementwise_output(std::string_view op, const Tensor& out, const TensorSpec& expected,
                              std::initializer_list<NamedTensor> inputs);

/// The backend that runs an operator. `libraries` lists the library backends that the operator has, best
/// first, with whether each can serve this call and, if not, why. A preferred library that cannot is an
/// UnsupportedError with that reason; one the operator does not have is no concern of it. Without a
/// preference the first that can is taken, and the hand-written backend of the device if none.
struct Candidate {
  Backend backend;
  bool serves;
  std::string_view reason;
};
Backend choose(std::string_view op, const Context& ctx, std::initializer_list<Candidate> libraries = {});

}  // namespace burin::ops
