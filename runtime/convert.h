#pragma once
// Private: one element type to another, the same on CPU and GPU.

#include <burin/runtime/float16.h>

#include <cstdint>
#include <type_traits>

namespace burin {

namespace detail {

/// x rounded so that a second rounding, to f16 or bf16, gives what rounding x once would: truncated, with the
/// last bit set if anything was lost (Boldo, Melquiond: "When double rounding is odd", 2005).
BURIN_HOST_DEVICE inline float round_to_odd(double x) {
  float nearest = static_cast<float>(x);
  if (!(static_cast<double>(nearest) != x) || x != x) return nearest;  // exact, or NaN
  std::uint32_t bits = bits_of(nearest);
  const double magnitude = x < 0 ? -x : x;
  const double rounded = x < 0 ? -static_cast<double>(nearest) : static_cast<double>(nearest);
  if (rounded > magnitude) --bits;
  return float_of(bits | 1u);
}

template <class T>
inline constexpr bool is_half = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;

}  // namespace detail

/// Floating to integer truncates toward zero and saturates, NaN becomes 0; integer to integer wraps (two's
/// complement); to bool is "not zero"; to a narrower floating type rounds to nearest, ties to even, once.
template <class To, class From>
BURIN_HOST_DEVICE inline To convert(From x) {
  using detail::is_half;
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (is_half<From>) {
    return convert<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (is_half<To>) {
    if constexpr (std::is_same_v<From, float>)
      return To(x);
    else if constexpr (sizeof(From) <= 2)
      return To(static_cast<float>(x));  // exact in f32
    else
      return To(detail::round_to_odd(static_cast<double>(x)));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // 2^digits is exact in From; the largest To need not be.
    constexpr int kDigits = static_cast<int>(sizeof(To)) * 8 - (std::is_signed_v<To> ? 1 : 0);
    constexpr From kAbove = static_cast<From>(1ull << (kDigits - 1)) * From(2);
    constexpr From kLowest = std::is_signed_v<To> ? -kAbove : From(0);
    constexpr To kLargestTo = static_cast<To>(~(std::is_signed_v<To> ? 1ull << (sizeof(To) * 8 - 1) : 0ull));
    if (x != x) return To(0);
    if (x >= kAbove) return kLargestTo;
    if (x <= kLowest) return std::is_signed_v<To> ? static_cast<To>(-kLargestTo - 1) : To(0);
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace burin
