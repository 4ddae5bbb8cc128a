#pragma once
// Private: functions of the host that compilers turn into vector code, which calls of the C library prevent.
// NaN gives NaN, and infinities their limits.

#include <bit>
#include <cstdint>

namespace burin {

/// e^x within 2 ulp. The polynomial is that of expf in Moshier's Cephes library.
inline float vector_exp(float x) {
  x = x > 90.0f ? 90.0f : x;  // overflows below as it should
  x = x < -105.0f ? -105.0f : x;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, kept in the low bits
  const float shifted = x * 1.44269504f + kRounder;
  const float n = shifted - kRounder;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // x - n ln 2, in two parts
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // 2^n in two factors, so that neither leaves the range of exponents.
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kRounder);
  const std::int32_t half = exponent >> 1;
  const float first = std::bit_cast<float>((half + 127) << 23);
  const float second = std::bit_cast<float>((exponent - half + 127) << 23);
  return p * first * second;
}

/// tanh(x) within 2 ulp; near 0 by the polynomial of Cephes' tanhf.
inline float vector_tanh(float x) {
  const float magnitude = x < 0.0f ? -x : x;
  const float far = 1.0f - 2.0f / (vector_exp(2.0f * magnitude) + 1.0f);
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float near = p * z * x + x;
  return magnitude < 0.625f ? near : (x < 0.0f ? -far : far);
}

/// erf(x) within 4 ulp, by the rational function of Eigen's perf.
inline float vector_erf(float x) {
  const float c =
      x > 3.832506856900711f ? 3.832506856900711f : (x < -3.832506856900711f ? -3.832506856900711f : x);
  const float z = c * c;
  float p = -2.72614225801306e-10f;
  p = p * z + 2.77068142495902e-08f;
  p = p * z - 2.10102402082508e-06f;
  p = p * z - 5.69250639462346e-05f;
  p = p * z - 7.34990630326855e-04f;
  p = p * z - 2.95459980854025e-03f;
  p = p * z - 1.60960333262415e-02f;
  float q = -1.45660718464996e-05f;
  q = q * z - 2.13374055278905e-04f;
  q = q * z - 1.68282697438203e-03f;
  q = q * z - 7.37332916720468e-03f;
  q = q * z - 1.42647390514189e-02f;
  return c * p / q;
}

}  // namespace burin
