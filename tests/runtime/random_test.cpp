// The random sequence: known answers, accuracy, independence of device, split and thread count.

#include <burin/runtime/cpu/thread_pool.h>
#include <burin/runtime/philox.h>
#include <burin/runtime/random.h>
#include <support/test_support.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <vector>

#include <gmock/gmock.h>

namespace burin::test {
namespace {

using ::testing::ElementsAre;

constexpr long double kTwoPi = 6.283185307179586476925286766559L;

TEST(Philox, GivesThePublishedAnswers) {
  const auto run = [](philox::Words counter, std::uint32_t key0, std::uint32_t key1) {
    const philox::Words out = philox::philox4x32(counter, key0, key1);
    return std::vector<std::uint32_t>(out.word, out.word + 4);
  };
  EXPECT_THAT(run({{0, 0, 0, 0}}, 0, 0), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(run({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(run({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(Philox, LogarithmIsAccurate) {
  std::vector<std::uint64_t> points = {1,          2,          3,          0xB504F333, 0xB504F334,
                                       0x80000000, 0x80000001, 0xFFFFFFFF, 1ull << 32};
  Random random;
  for (int i = 0; i < 20000; ++i)
    points.push_back(static_cast<std::uint64_t>(random.integer(1, std::int64_t{1} << 32)));
  for (const std::uint64_t k : points) {
    const long double expected = std::log(static_cast<long double>(k) * 0x1p-32L);
    ASSERT_LE(std::abs(philox::log_of_fraction(k) - expected), 1e-15L * std::abs(expected)) << k;
  }
}

TEST(Philox, SineAndCosineAreAccurate) {
  std::vector<std::uint32_t> points = {0, 1, ~0u};
  for (std::uint32_t eighth = 0; eighth < 8; ++eighth)
    for (const std::uint32_t near : {0x1FFFFFFFu, 0x20000000u, 0x20000001u})
      points.push_back(eighth * 0x20000000u + near);
  Random random;
  for (int i = 0; i < 20000; ++i) points.push_back(static_cast<std::uint32_t>(random.integer(0, 0xFFFFFFFF)));
  for (const std::uint32_t k : points) {
    const philox::SineCosine actual = philox::sine_cosine_of_turn(k);
    const long double angle = kTwoPi * static_cast<long double>(k) * 0x1p-32L;
    ASSERT_LE(std::abs(actual.sine - std::sin(angle)), 3e-16L) << k;
    ASSERT_LE(std::abs(actual.cosine - std::cos(angle)), 3e-16L) << k;
  }
}

class RandomTest : public OnEachTarget {
 protected:
  std::vector<double> uniform_values(std::int64_t count, Philox random, float low = 0, float high = 1) {
    return values(uniform(ctx(), {count}, random, low, high, dtype()));
  }
  std::vector<double> normal_values(std::int64_t count, Philox random, float mean = 0, float stddev = 1) {
    return values(normal(ctx(), {count}, random, mean, stddev, dtype()));
  }
};
INSTANTIATE_TEST_SUITE_P(All, RandomTest,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda},
                                                     {DType::f32, DType::f16, DType::bf16})),
                         target_name);

TEST_P(RandomTest, UniformIsTheGoldenSequence) {
  std::ifstream file(BURIN_TEST_DATA "/philox_uniform.npy", std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  ASSERT_GE(bytes.size(), 64 * sizeof(float));  // the elements end the file
  std::vector<float> golden(64);
  std::memcpy(golden.data(), bytes.data() + bytes.size() - 64 * sizeof(float), 64 * sizeof(float));
  std::vector<double> expected;
  for (const float value : golden) expected.push_back(rounded(value, dtype()));
  expect_equal(uniform_values(64, {.seed = 42}), expected);
}

TEST_P(RandomTest, IsBitEqualOnTheCpu) {
  Context cpu;
  Random random;
  for (int i = 0; i < 200; ++i) {
    const std::int64_t count = random.integer(0, 300);
    const auto offset = static_cast<std::uint64_t>(random.integer(0, 1 << (i % 30)));
    const Philox philox{static_cast<std::uint64_t>(random.integer(0, INT64_MAX)),
                        i % 7 == 0 ? ~std::uint64_t{5} - offset % 3 : offset};
    const auto low = static_cast<float>(random.real(-3, 1));
    const auto high = static_cast<float>(random.real(1, 5));
    expect_equal(uniform_values(count, philox, low, high),
                 values_of(cpu, uniform(cpu, {count}, philox, low, high, dtype())));
    expect_equal(normal_values(count, philox, low, high),
                 values_of(cpu, normal(cpu, {count}, philox, low, high, dtype())));
  }
  const std::int64_t many = 1000003;
  expect_equal(normal_values(many, {7, 9}), values_of(cpu, normal(cpu, {many}, {7, 9}, 0, 1, dtype())));
}

TEST_P(RandomTest, ElementsDependOnlyOnSeedAndPosition) {
  const std::vector<double> all_uniform = uniform_values(1000, {.seed = 3});
  const std::vector<double> all_normal = normal_values(1000, {.seed = 3});
  Random random;
  for (int i = 0; i < 100; ++i) {
    const std::int64_t first = random.integer(0, 999);
    const std::int64_t count = random.integer(0, 1000 - first);
    const Philox philox{3, static_cast<std::uint64_t>(first)};
    expect_equal(uniform_values(count, philox),
                 {all_uniform.begin() + first, all_uniform.begin() + first + count});
    expect_equal(normal_values(count, philox),
                 {all_normal.begin() + first, all_normal.begin() + first + count});
  }
}

TEST_P(RandomTest, PositionsWrapAtTheEndOfTheSequence) {
  const std::vector<double> start = uniform_values(10, {.seed = 3});
  const std::vector<double> across = uniform_values(15, {3, ~std::uint64_t{0} - 4});
  expect_equal({across.begin() + 5, across.end()}, start);
}

TEST_P(RandomTest, NormalIsBoxMullerOfTheWords) {
  const std::vector<double> actual = normal_values(4000, {.seed = 11}, 0.5f, 2.0f);
  std::vector<double> expected;
  for (std::uint64_t block = 0; block < 1000; ++block) {
    const philox::Words words = philox::block_of(11, block);
    for (int lane = 0; lane < 4; lane += 2) {
      const long double radius = std::sqrt(-2 * std::log((words.word[lane] + 1.0L) * 0x1p-32L));
      const long double angle = kTwoPi * words.word[lane + 1] * 0x1p-32L;
      expected.push_back(static_cast<double>(0.5L + 2 * radius * std::cos(angle)));
      expected.push_back(static_cast<double>(0.5L + 2 * radius * std::sin(angle)));
    }
  }
  expect_near(actual, expected, [&](std::size_t i) {
    return (0x1.1p-23 + (dtype() == DType::f32 ? 0 : 1.01 * epsilon(dtype()))) * (std::abs(expected[i]) + 1);
  });
}

TEST_P(RandomTest, MomentsAreRight) {
  if (dtype() != DType::f32) return;
  constexpr std::int64_t kCount = 1 << 20;
  const double sigma = 1 / std::sqrt(static_cast<double>(kCount));
  const auto moment = [&](const std::vector<double>& x, int power) {
    double sum = 0;
    for (const double value : x) sum += std::pow(value, power);
    return sum / static_cast<double>(kCount);
  };
  const std::vector<double> u = uniform_values(kCount, {.seed = 1}, -1, 1);
  EXPECT_NEAR(moment(u, 1), 0, 4 * sigma * std::sqrt(1.0 / 3));
  EXPECT_NEAR(moment(u, 2), 1.0 / 3, 4 * sigma * std::sqrt(4.0 / 45));
  const std::vector<double> z = normal_values(kCount, {.seed = 2});
  EXPECT_NEAR(moment(z, 1), 0, 4 * sigma);
  EXPECT_NEAR(moment(z, 2), 1, 4 * sigma * std::sqrt(2.0));
  EXPECT_NEAR(moment(z, 3), 0, 4 * sigma * std::sqrt(15.0));
  EXPECT_NEAR(moment(z, 4), 3, 4 * sigma * std::sqrt(96.0));
  double neighbours = 0;
  for (std::size_t i = 1; i < z.size(); ++i) neighbours += z[i] * z[i - 1];
  EXPECT_NEAR(neighbours / static_cast<double>(kCount), 0, 4 * sigma);
}

TEST_P(RandomTest, UniformStaysWithinItsBounds) {
  for (const double value : uniform_values(100000, {.seed = 5}, 2, 3))
    ASSERT_TRUE(value >= 2 && value <= 3) << value;
  expect_equal(uniform_values(5, {}, 2, 2), std::vector<double>(5, 2));
}

TEST_P(RandomTest, EmptyTensorsAreFine) {
  EXPECT_EQ(uniform(ctx(), {3, 0}, {}, 0, 1, dtype()).count(), 0);
  EXPECT_EQ(normal(ctx(), {0}, {1, 3}, 0, 1, dtype()).count(), 0);
}

TEST_P(RandomTest, RejectsBadParameters) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  expect_error<ShapeError>([&] { uniform(ctx(), {2}, {}, 2, 1); }, "uniform: low");
  expect_error<ShapeError>([&] { uniform(ctx(), {2}, {}, -kInfinity, 1); }, "uniform: low");
  expect_error<ShapeError>([&] { uniform(ctx(), {2}, {}, 0, std::nanf("")); }, "uniform: low");
  expect_error<ShapeError>([&] { uniform(ctx(), {2}, {}, -3e38f, 3e38f); }, "uniform: low");
  expect_error<ShapeError>([&] { normal(ctx(), {2}, {}, 0, -1); }, "stddev (-1)");
  expect_error<ShapeError>([&] { normal(ctx(), {2}, {}, kInfinity, 1); }, "mean (inf)");
  expect_error<DTypeError>([&] { uniform(ctx(), {2}, {}, 0, 1, DType::i32); }, "uniform");
  expect_error<DTypeError>([&] { normal(ctx(), {2}, {}, 0, 1, DType::f64); }, "normal");
}

TEST_P(RandomTest, FailsCleanlyWhenMemoryRunsOut) {
  expect_clean_allocation_failures(GetParam().device(), [&](Context& local) {
    uniform(local, {1000}, {}, 0, 1, dtype());
    normal(local, {1000}, {}, 0, 1, dtype());
  });
}

TEST_P(RandomTest, GeneratorsContinueWhereTheLastDrawEnded) {
  Generator generator(9, 2);
  Philox expected{9, 2};
  for (const std::int64_t count : {5, 1, 0, 7, 4, 1003}) {
    expect_equal(values(uniform(ctx(), {count}, generator, -1, 2, dtype())),
                 uniform_values(count, expected, -1, 2));
    expected.offset += static_cast<std::uint64_t>(count);
    EXPECT_EQ(generator.next(), expected);
    expect_equal(values(normal(ctx(), {count, 3}, generator, 1, 2, dtype())),
                 normal_values(3 * count, expected, 1, 2));
    expected.offset += 3 * static_cast<std::uint64_t>(count);
    EXPECT_EQ(generator.next(), expected);
  }
}

TEST_P(RandomTest, GeneratorsStandWhereTheyDidAfterAFailedDraw) {
  Generator generator(9, 2);
  expect_error<ShapeError>([&] { uniform(ctx(), {2}, generator, 2, 1); }, "uniform: low");
  expect_error<ShapeError>([&] { normal(ctx(), {2}, generator, 0, -1); }, "stddev (-1)");
  expect_error<DTypeError>([&] { uniform(ctx(), {2}, generator, 0, 1, DType::i32); }, "uniform");
  expect_error<DTypeError>([&] { normal(ctx(), {2}, generator, 0, 1, DType::f64); }, "normal");
  ContextOptions options;
  options.memory = std::make_shared<LimitingResource>(make_resource(GetParam().device()), 64);
  Context small(GetParam().device(), std::move(options));
  EXPECT_THROW(uniform(small, {1000}, generator, 0, 1, dtype()), OutOfMemory);
  EXPECT_THROW(normal(small, {1000}, generator, 0, 1, dtype()), OutOfMemory);
  EXPECT_EQ(generator.next(), (Philox{9, 2}));
}

TEST(Generator, CopiesAreTheSameGenerator) {
  Generator generator(3);
  Generator copy = generator;
  EXPECT_EQ(copy, generator);
  EXPECT_NE(Generator(3), generator);
  EXPECT_EQ(copy.take(5), (Philox{3, 0}));
  EXPECT_EQ(generator.take(0), (Philox{3, 5}));
  EXPECT_EQ(generator.next(), (Philox{3, 5}));
  generator.set({4, ~std::uint64_t{0}});
  EXPECT_EQ(copy.take(2), (Philox{4, ~std::uint64_t{0}}));
  EXPECT_EQ(copy.next(), (Philox{4, 1}));  // positions wrap
}

TEST(Random, IsTheSameForAnyNumberOfThreads) {
  const auto run = [](int threads) {
    ContextOptions options;
    options.threads = threads;
    Context ctx(Device::cpu(), std::move(options));
    return to_vector<float>(ctx, normal(ctx, {300001}, {1, 1}));
  };
  EXPECT_EQ(run(1), run(4));
}

}  // namespace
}  // namespace burin::test
