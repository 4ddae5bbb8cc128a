#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define BURIN_HOST_DEVICE __host__ __device__
#else
#define BURIN_HOST_DEVICE
#endif

namespace burin {

/// IEEE binary16 as storage. Arithmetic is done in float; conversion rounds to nearest, ties to even, and
/// keeps infinities, NaN and subnormals.
struct f16 {
  std::uint16_t bits = 0;
  f16() = default;
  BURIN_HOST_DEVICE explicit f16(float value);
  BURIN_HOST_DEVICE explicit operator float() const;
  bool operator==(const f16&) const = default;
};

/// bfloat16 (the upper half of a float) as storage. Conversion rounds to nearest, ties to even.
struct bf16 {
  std::uint16_t bits = 0;
  bf16() = default;
  BURIN_HOST_DEVICE explicit bf16(float value);
  BURIN_HOST_DEVICE explicit operator float() const;
  bool operator==(const bf16&) const = default;
};

namespace detail {
BURIN_HOST_DEVICE inline std::uint32_t bits_of(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}
BURIN_HOST_DEVICE inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
}  // namespace detail

BURIN_HOST_DEVICE inline f16::f16(float value) {
#if defined(__CUDA_ARCH__)  // one instruction, with the same result (but one NaN for all)
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
  const std::uint32_t in = detail::bits_of(value);
  const std::uint32_t sign = (in >> 16) & 0x8000u;
  const std::uint32_t magnitude = in & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {  // NaN: keep the upper payload bits, quiet
    bits = static_cast<std::uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x1FFu));
  } else if (magnitude >= 0x477FF000u) {  // rounds to 2^16 or more
    bits = static_cast<std::uint16_t>(sign | 0x7C00u);
  } else if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 rounds to the subnormal's bits
    const float sum = detail::float_of(magnitude) + 0.5f;
    bits = static_cast<std::uint16_t>(sign | (detail::bits_of(sum) - 0x3F000000u));
  } else {
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    bits = static_cast<std::uint16_t>(sign | ((magnitude + 0xC8000FFFu + odd) >> 13));
  }
#endif
}

BURIN_HOST_DEVICE inline f16::operator float() const {
#if defined(__CUDA_ARCH__)
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFu;
  if (magnitude >= 0x7C00u) return detail::float_of(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13));
  if (magnitude >= 0x0400u) return detail::float_of(sign | ((magnitude << 13) + 0x38000000u));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return detail::float_of(sign | detail::bits_of(subnormal));
#endif
}

BURIN_HOST_DEVICE inline bf16::bf16(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
  const std::uint32_t in = detail::bits_of(value);
  if ((in & 0x7FFFFFFFu) > 0x7F800000u) {
    bits = static_cast<std::uint16_t>((in >> 16) | 0x40u);
  } else {
    bits = static_cast<std::uint16_t>((in + 0x7FFFu + ((in >> 16) & 1u)) >> 16);
  }
#endif
}

BURIN_HOST_DEVICE inline bf16::operator float() const {
  return detail::float_of(static_cast<std::uint32_t>(bits) << 16);
}

}  // namespace burin
