#pragma once
// Private: the random sequence of random.h, the same on CPU and GPU bit for bit. Files that include this are
// compiled without fused multiply-add (runtime/CMakeLists.txt); where one is wanted, fma() says so.

#include <burin/runtime/float16.h>

#include <cmath>
#include <cstdint>

namespace burin::philox {

struct Words {
  std::uint32_t word[4];
};

/// Philox4x32-10 of Salmon, Moraes, Dror, Shaw (SC 2011).
BURIN_HOST_DEVICE inline Words philox4x32(Words counter, std::uint32_t key0, std::uint32_t key1) {
  std::uint32_t* c = counter.word;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * c[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * c[2];
    const std::uint32_t next0 = static_cast<std::uint32_t>(product1 >> 32) ^ c[1] ^ key0;
    const std::uint32_t next2 = static_cast<std::uint32_t>(product0 >> 32) ^ c[3] ^ key1;
    c[1] = static_cast<std::uint32_t>(product1);
    c[3] = static_cast<std::uint32_t>(product0);
    c[0] = next0;
    c[2] = next2;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

/// Block b of the sequence: elements 4b to 4b + 3.
BURIN_HOST_DEVICE inline Words block_of(std::uint64_t seed, std::uint64_t block) {
  const Words counter = {{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}};
  return philox4x32(counter, static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
}

/// Natural logarithm of k * 2^-32, for k in [1, 2^32], to about 2^-52: with k * 2^-32 = 2^e m, m in
/// (sqrt(1/2), sqrt(2)], it is e ln 2 + 2 atanh(s), s = (m - 1) / (m + 1), by the Taylor series of atanh up
/// to s^21 (s^2 <= 0.0295).
BURIN_HOST_DEVICE inline double log_of_fraction(std::uint64_t k) {
  int exponent = -32;
  double m = static_cast<double>(k);
  const auto bits = __builtin_bit_cast(std::uint64_t, m);
  exponent += static_cast<int>(bits >> 52) - 1023;
  m = __builtin_bit_cast(double, (bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);  // [1, 2)
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double series = 1.0 / 21.0;
  series = fma(series, z, 1.0 / 19.0);
  series = fma(series, z, 1.0 / 17.0);
  series = fma(series, z, 1.0 / 15.0);
  series = fma(series, z, 1.0 / 13.0);
  series = fma(series, z, 1.0 / 11.0);
  series = fma(series, z, 1.0 / 9.0);
  series = fma(series, z, 1.0 / 7.0);
  series = fma(series, z, 1.0 / 5.0);
  series = fma(series, z, 1.0 / 3.0);
  series = fma(series, z, 1.0);
  return fma(static_cast<double>(exponent), 0.69314718055994531, 2.0 * s * series);
}

struct SineCosine {
  double sine, cosine;
};

/// Of 2 pi k 2^-32, by the Taylor series up to t^17 and t^16 after reduction to the nearest quarter turn.
BURIN_HOST_DEVICE inline SineCosine sine_cosine_of_turn(std::uint32_t k) {
  const std::uint32_t quarter = (k + 0x20000000u) >> 30;
  const auto rest = static_cast<std::int32_t>(k - (quarter << 30));     // [-2^29, 2^29)
  const double t = static_cast<double>(rest) * 1.4629180792671596e-09;  // 2 pi 2^-32
  const double z = t * t;
  double sine = 1.0 / 355687428096000.0;
  sine = fma(sine, z, -1.0 / 1307674368000.0);
  sine = fma(sine, z, 1.0 / 6227020800.0);
  sine = fma(sine, z, -1.0 / 39916800.0);
  sine = fma(sine, z, 1.0 / 362880.0);
  sine = fma(sine, z, -1.0 / 5040.0);
  sine = fma(sine, z, 1.0 / 120.0);
  sine = fma(sine, z, -1.0 / 6.0);
  sine = fma(sine * z, t, t);
  double cosine = 1.0 / 20922789888000.0;
  cosine = fma(cosine, z, -1.0 / 87178291200.0);
  cosine = fma(cosine, z, 1.0 / 479001600.0);
  cosine = fma(cosine, z, -1.0 / 3628800.0);
  cosine = fma(cosine, z, 1.0 / 40320.0);
  cosine = fma(cosine, z, -1.0 / 720.0);
  cosine = fma(cosine, z, 1.0 / 24.0);
  cosine = fma(cosine, z, -1.0 / 2.0);
  cosine = fma(cosine, z, 1.0);
  switch (quarter & 3u) {
    case 0: return {sine, cosine};
    case 1: return {cosine, -sine};
    case 2: return {-sine, -cosine};
    default: return {-cosine, sine};
  }
}

struct Floats {
  float value[4];
};

/// A word in [0, 1): its upper 24 bits; scaled with a rounding after each operation.
struct Uniform {
  float low, range;
  BURIN_HOST_DEVICE Floats operator()(const Words& words) const {
    Floats out;
    for (int lane = 0; lane < 4; ++lane) {
      const float scaled = range * (static_cast<float>(words.word[lane] >> 8) * 0x1p-24f);
      out.value[lane] = low + scaled;
    }
    return out;
  }
};

/// Box and Muller (1958): words (a, b) of a pair give r cos(2 pi v) and r sin(2 pi v), with r = sqrt(-2 ln
/// u), u = (a + 1) 2^-32 in (0, 1], v = b 2^-32; computed in double, rounded to f32, then scaled.
struct Normal {
  float mean, stddev;
  BURIN_HOST_DEVICE Floats operator()(const Words& words) const {
    Floats out;
    for (int lane = 0; lane < 4; lane += 2) {
      const double radius = sqrt(-2.0 * log_of_fraction(std::uint64_t{words.word[lane]} + 1));
      const SineCosine angle = sine_cosine_of_turn(words.word[lane + 1]);
      out.value[lane] = mean + stddev * static_cast<float>(radius * angle.cosine);
      out.value[lane + 1] = mean + stddev * static_cast<float>(radius * angle.sine);
    }
    return out;
  }
};

/// How `count` elements from position `offset` on lie in blocks of four. Positions wrap at 2^64.
struct Blocks {
  std::uint64_t seed;
  std::uint64_t first;  // block of element 0
  int skipped;          // elements of that block before element 0
  std::int64_t count;   // of blocks

  BURIN_HOST_DEVICE static Blocks cover(std::uint64_t seed, std::uint64_t offset, std::int64_t count) {
    const int skipped = static_cast<int>(offset % 4);
    return {seed, offset / 4, skipped, count == 0 ? 0 : (count - 1 + skipped) / 4 + 1};
  }
  BURIN_HOST_DEVICE Words words(std::int64_t i) const {
    return block_of(seed, (first + static_cast<std::uint64_t>(i)) & (~std::uint64_t{0} >> 2));
  }
};

}  // namespace burin::philox
