#pragma once
// Private: the arithmetic of binary, once, and its backends.

#include <burin/ops/binary/binary.h>
#include <burin/runtime/dispatch.h>
#include <burin/runtime/float16.h>
#include <burin/runtime/strided.h>

#include <cstdint>
#include <type_traits>

namespace burin::binary_impl {

template <BinaryKind kKind, class T>
BURIN_HOST_DEVICE inline T apply(T a, T b) {
  if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>) {
    return T(apply<kKind>(static_cast<float>(a), static_cast<float>(b)));
  } else if constexpr (std::is_floating_point_v<T>) {
    if constexpr (kKind == BinaryKind::add) return a + b;
    if constexpr (kKind == BinaryKind::sub) return a - b;
    if constexpr (kKind == BinaryKind::mul) return a * b;
    if constexpr (kKind == BinaryKind::div) return a / b;
  } else {
    using Unsigned = std::make_unsigned_t<T>;  // signed overflow is undefined in C++, this wraps
    const auto u = static_cast<Unsigned>(a);
    const auto v = static_cast<Unsigned>(b);
    if constexpr (kKind == BinaryKind::add) return static_cast<T>(u + v);
    if constexpr (kKind == BinaryKind::sub) return static_cast<T>(u - v);
    if constexpr (kKind == BinaryKind::mul) return static_cast<T>(u * v);
    if constexpr (kKind == BinaryKind::div) {
      if (b == 0) return T(0);
      if constexpr (std::is_signed_v<T>)
        if (b == -1) return static_cast<T>(Unsigned(0) - u);  // the lowest value has no positive
      return static_cast<T>(a / b);
    }
  }
}

/// Calls body.template operator()<kKind>().
template <class Body>
void with_kind(BinaryKind kind, Body&& body) {
  switch (kind) {
    case BinaryKind::add: return body.template operator()<BinaryKind::add>();
    case BinaryKind::sub: return body.template operator()<BinaryKind::sub>();
    case BinaryKind::mul: return body.template operator()<BinaryKind::mul>();
    case BinaryKind::div: return body.template operator()<BinaryKind::div>();
  }
}

/// Calls body.template operator()<T>() with every numeric type; throws DTypeError for bool.
template <class Body>
void with_numeric_dtype(DType dtype, std::string_view op, Body&& body) {
  with_any_dtype(dtype, op, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool>)
      throw_dtype_not_supported(op, dtype);
    else
      body.template operator()<T>();
  });
}

// Operands of `loop`: y, a, b; at least one element. y may be a or b.
void cpu(Context& ctx, BinaryKind kind, Tensor& y, const Tensor& a, const Tensor& b,
         const StridedLoop<3>& loop);
void cuda(Context& ctx, BinaryKind kind, Tensor& y, const Tensor& a, const Tensor& b,
          const StridedLoop<3>& loop);

}  // namespace burin::binary_impl
