#pragma once
// Private: from a run-time dtype to a compile-time one.

#include <burin/runtime/dtype.h>

#include <string_view>
#include <utility>

namespace burin {

[[noreturn]] void throw_dtype_not_supported(std::string_view op, DType dtype);

/// Calls body.template operator()<T>() with T of f32, f16, bf16; throws DTypeError that names the operator
/// otherwise.
template <class Body>
decltype(auto) with_float_dtype(DType dtype, std::string_view op, Body&& body) {
  switch (dtype) {
    case DType::f32: return body.template operator()<float>();
    case DType::f16: return body.template operator()<f16>();
    case DType::bf16: return body.template operator()<bf16>();
    default: throw_dtype_not_supported(op, dtype);
  }
}

/// The same over every type there is.
template <class Body>
decltype(auto) with_any_dtype(DType dtype, std::string_view op, Body&& body) {
  switch (dtype) {
    case DType::f32: return body.template operator()<float>();
    case DType::f16: return body.template operator()<f16>();
    case DType::bf16: return body.template operator()<bf16>();
    case DType::f64: return body.template operator()<double>();
    case DType::i8: return body.template operator()<std::int8_t>();
    case DType::u8: return body.template operator()<std::uint8_t>();
    case DType::i32: return body.template operator()<std::int32_t>();
    case DType::i64: return body.template operator()<std::int64_t>();
    case DType::boolean: return body.template operator()<bool>();
  }
  throw_dtype_not_supported(op, dtype);
}

}  // namespace burin
