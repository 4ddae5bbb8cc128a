#include <burin/runtime/convert.h>
#include <burin/runtime/dispatch.h>
#include <burin/runtime/dtype.h>
#include <burin/runtime/error.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace burin {
namespace {

/// What tells one 16-bit format from another.
struct F16Format {
  using Type = f16;
  static constexpr int kExponentBits = 5;
};
struct Bf16Format {
  using Type = bf16;
  static constexpr int kExponentBits = 8;
};

/// The value of a pattern, by the definition of IEEE 754. The pattern of infinity stands for the power of two
/// that would come next, which is where rounding to nearest overflows.
template <class Format>
double decode(std::uint32_t bits) {
  constexpr int kMantissaBits = 15 - Format::kExponentBits;
  constexpr int kBias = (1 << (Format::kExponentBits - 1)) - 1;
  const int exponent = static_cast<int>((bits & 0x7FFFu) >> kMantissaBits);
  const double mantissa = std::ldexp(bits & ((1u << kMantissaBits) - 1), -kMantissaBits);
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, 1 - kBias) : std::ldexp(1 + mantissa, exponent - kBias);
  return bits & 0x8000u ? -magnitude : magnitude;
}

template <class Format>
constexpr std::uint32_t infinity_bits() {
  return ((1u << Format::kExponentBits) - 1) << (15 - Format::kExponentBits);
}

template <class Format>
class Float16 : public ::testing::Test {};
using Formats = ::testing::Types<F16Format, Bf16Format>;
TYPED_TEST_SUITE(Float16, Formats);

TYPED_TEST(Float16, EveryPatternConvertsToFloatAndBack) {
  using T = typename TypeParam::Type;
  constexpr std::uint32_t kInfinity = infinity_bits<TypeParam>();
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    T x;
    x.bits = static_cast<std::uint16_t>(bits);
    const float value = static_cast<float>(x);
    const std::uint32_t magnitude = bits & 0x7FFFu;
    if (magnitude > kInfinity) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(T(value)))) << bits;
      continue;
    }
    if (magnitude == kInfinity)
      ASSERT_TRUE(std::isinf(value)) << bits;
    else
      ASSERT_EQ(static_cast<double>(value), decode<TypeParam>(bits)) << bits;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000u) != 0) << bits;
    ASSERT_EQ(T(value).bits, bits);
    ASSERT_EQ(convert<T>(static_cast<double>(value)).bits, bits);
  }
}

/// Between neighbours the border is half-way, and half-way itself goes to the even pattern.
TYPED_TEST(Float16, RoundsToNearestTiesToEven) {
  using T = typename TypeParam::Type;
  for (std::uint32_t bits = 0; bits < infinity_bits<TypeParam>(); ++bits) {
    const double half_way = (decode<TypeParam>(bits) + decode<TypeParam>(bits + 1)) / 2;
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    const auto middle = static_cast<float>(half_way);
    ASSERT_EQ(static_cast<double>(middle), half_way) << "half-way values are exact in f32";
    for (const std::uint32_t sign : {0x0000u, 0x8000u}) {
      const float s = sign == 0 ? 1.0f : -1.0f;
      ASSERT_EQ(T(s * middle).bits, sign | even) << bits;
      ASSERT_EQ(T(s * std::nextafter(middle, 0.0f)).bits, sign | bits) << bits;
      ASSERT_EQ(T(s * std::nextafter(middle, std::numeric_limits<float>::infinity())).bits, sign | (bits + 1))
          << bits;
      // From f64, where rounding to f32 on the way would lose the difference.
      ASSERT_EQ(convert<T>(s * half_way).bits, sign | even) << bits;
      ASSERT_EQ(convert<T>(s * std::nextafter(half_way, 0.0)).bits, sign | bits) << bits;
      ASSERT_EQ(convert<T>(s * std::nextafter(half_way, 1e300)).bits, sign | (bits + 1)) << bits;
    }
  }
}

TYPED_TEST(Float16, OverflowsToInfinity) {
  using T = typename TypeParam::Type;
  EXPECT_EQ(T(std::numeric_limits<float>::max()).bits, infinity_bits<TypeParam>());
  EXPECT_EQ(convert<T>(-1e300).bits, 0x8000u | infinity_bits<TypeParam>());
  EXPECT_EQ(convert<T>(1e-300).bits, 0u);
  EXPECT_EQ(convert<T>(-1e-300).bits, 0x8000u);
}

TEST(Convert, IntegersToHalvesRoundOnce) {
  EXPECT_EQ(static_cast<float>(convert<f16>(std::int32_t{2049})), 2048.0f);
  EXPECT_EQ(static_cast<float>(convert<f16>(std::int32_t{2051})), 2052.0f);
  // 2^30 + 2^22 is half-way between bf16 values; one more decides, and f32 would have lost it.
  EXPECT_EQ(static_cast<float>(convert<bf16>(std::int32_t{(1 << 30) + (1 << 22)})), 0x1p30f);
  EXPECT_EQ(static_cast<float>(convert<bf16>(std::int32_t{(1 << 30) + (1 << 22) + 1})), 0x1.02p30f);
  EXPECT_EQ(static_cast<float>(convert<bf16>((std::int64_t{1} << 40) + (std::int64_t{1} << 32) + 1)),
            0x1.02p40f);
}

TEST(Convert, FloatingToIntegerTruncatesAndSaturates) {
  EXPECT_EQ(convert<std::int32_t>(-1.9f), -1);
  EXPECT_EQ(convert<std::int32_t>(0x1p31f), std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(convert<std::int32_t>(-0x1p31f), std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(convert<std::int64_t>(0x1p63), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(convert<std::int64_t>(-1e30f), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(convert<std::uint8_t>(-0.5f), 0);
  EXPECT_EQ(convert<std::uint8_t>(255.9f), 255);
  EXPECT_EQ(convert<std::int8_t>(f16(300.0f)), 127);
  EXPECT_EQ(convert<std::int32_t>(std::numeric_limits<float>::quiet_NaN()), 0);
  EXPECT_EQ(convert<bool>(0.25f), true);
  EXPECT_EQ(convert<bool>(-0.0f), false);
}

TEST(Convert, IntegersWrap) {
  EXPECT_EQ(convert<std::uint8_t>(std::int32_t{257}), 1);
  EXPECT_EQ(convert<std::int8_t>(std::uint8_t{200}), -56);
  EXPECT_EQ(convert<std::int32_t>(std::int64_t{1} << 32), 0);
}

TEST(DType, NamesAndSizes) {
  EXPECT_EQ(name(DType::bf16), "bf16");
  EXPECT_EQ(name(DType::boolean), "bool");
  EXPECT_TRUE(is_floating(DType::f16));
  EXPECT_FALSE(is_floating(DType::u8));
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i8, DType::u8, DType::i32,
                            DType::i64, DType::boolean})
    with_any_dtype(dtype, "test", [&]<class T>() {
      EXPECT_EQ(dtype_of<T>(), dtype);
      EXPECT_EQ(sizeof(T), item_bytes(dtype)) << name(dtype);
    });
  EXPECT_THROW(with_float_dtype(DType::f64, "test", []<class T>() {}), DTypeError);
}

}  // namespace
}  // namespace burin
