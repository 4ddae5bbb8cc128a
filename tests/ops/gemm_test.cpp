// The hand-written CUDA product, called as matmul and linear call it, over what they may pass.

#include <burin/ops/common/activation_apply.h>
#include <burin/ops/common/fast_divmod.h>
#include <burin/ops/gemm/gemm.h>
#include <burin/ops/gemm/tile_choice.h>
#include <burin/runtime/config.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <support/test_support.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

namespace burin::test {
namespace {

constexpr double kUntouched = 77;

struct Case {
  gemm::Problem problem;
  bool bias = false;
  std::int64_t a_offset = 0, b_offset = 0, y_offset = 0;  // elements from an aligned address
};

std::string describe(const Case& c) {
  const gemm::Problem& p = c.problem;
  return fmt::format(
      "m {} n {} k {} batch {} transposed {}{} pitches {} {} {} strides {} {} offsets {} {} {} bias {} "
      "activation {}{}",
      p.m, p.n, p.k, p.batch, p.a_transposed ? "A" : "", p.b_transposed ? "B" : "", p.lda, p.ldb, p.ldy,
      p.a_batch_stride, p.b_batch_stride, c.a_offset, c.b_offset, c.y_offset, c.bias,
      static_cast<int>(p.activation.kind), p.allow_tf32 ? " tf32" : "");
}

/// A dense problem of these extents.
Case dense(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  gemm::Problem p = {};
  p.m = m, p.n = n, p.k = k, p.batch = 1;
  p.dtype = dtype;
  p.lda = k, p.ldb = n, p.ldy = n;
  p.a_batch_stride = m * k, p.b_batch_stride = k * n, p.y_batch_stride = m * n;
  return {p};
}

Case random_case(Random& random, DType dtype) {
  const auto extent = [&] {
    const double kind = random.real(0, 1);
    return kind < 0.25 ? random.integer(1, 9) : kind < 0.8 ? random.integer(1, 70) : random.integer(1, 300);
  };
  gemm::Problem p = {};
  p.dtype = dtype;
  p.m = extent(), p.n = extent(), p.k = extent();
  p.batch = random.chance(0.3) ? random.integer(2, 3) : 1;
  if (random.chance(0.4)) p.m = (p.m + 7) / 8 * 8, p.n = (p.n + 7) / 8 * 8, p.k = (p.k + 7) / 8 * 8;
  p.a_transposed = random.chance(0.3);
  p.b_transposed = random.chance(0.5);
  const bool aligned = random.chance(0.6);
  const auto pitch = [&](std::int64_t width) {
    if (random.chance(0.5)) width += random.integer(0, 9);
    return aligned ? (width + 7) / 8 * 8 : width;
  };
  p.lda = pitch(p.a_transposed ? p.m : p.k);
  p.ldb = pitch(p.b_transposed ? p.k : p.n);
  p.ldy = pitch(p.n);
  p.a_batch_stride = random.chance(0.3) ? 0 : (p.a_transposed ? p.k : p.m) * p.lda;
  p.b_batch_stride = random.chance(0.3) ? 0 : (p.b_transposed ? p.n : p.k) * p.ldb;
  p.y_batch_stride = p.m * p.ldy;
  constexpr Activation kActivations[] = {{},
                                         Activation::relu(),
                                         Activation::gelu(),
                                         Activation::leaky_relu(0.25f),
                                         Activation::clip(-0.5f, 2.0f)};
  p.activation = kActivations[random.integer(0, 4)];
  const auto offset = [&] { return aligned ? 0 : random.integer(0, 3); };
  return {p, random.chance(0.5), offset(), offset(), offset()};
}

class Gemm : public OnEachTarget {
 protected:
  /// Computes the case on the device with random operands and compares. The gaps between rows of A and B hold
  /// NaN, so that a product which reads them shows it.
  void check(const Case& c, Random& random) {
    SCOPED_TRACE(describe(c));
    const gemm::Problem& p = c.problem;
    const std::int64_t a_batch = p.a_batch_stride == 0 ? 1 : p.batch,
                       b_batch = p.b_batch_stride == 0 ? 1 : p.batch;
    const auto a = operand(random, a_batch * p.m * p.k);  // [batch][m][k]
    const auto b = operand(random, b_batch * p.n * p.k);  // [batch][n][k]
    const auto bias = operand(random, p.n);
    const Tensor a_stored = store(a, a_batch, p.m, p.k, p.a_transposed, p.lda, c.a_offset);
    const Tensor b_stored = store(b, b_batch, p.n, p.k, !p.b_transposed, p.ldb, c.b_offset);
    const Tensor bias_stored = tensor({p.n}, bias);
    Tensor y = full(ctx(), {c.y_offset + p.batch * p.y_batch_stride}, kUntouched, dtype());
    run(c, a_stored, b_stored, bias_stored, y);

    std::vector<double> expected(static_cast<std::size_t>(y.count()), kUntouched);
    std::vector<double> tolerance(expected.size(), 0.0);
    for (std::int64_t z = 0; z < p.batch; ++z)
      for (std::int64_t i = 0; i < p.m; ++i)
        for (std::int64_t j = 0; j < p.n; ++j) {
          const double* row = a.data() + ((a_batch == 1 ? 0 : z) * p.m + i) * p.k;
          const double* col = b.data() + ((b_batch == 1 ? 0 : z) * p.n + j) * p.k;
          double sum = c.bias ? bias[static_cast<std::size_t>(j)] : 0, magnitudes = std::abs(sum);
          for (std::int64_t k = 0; k < p.k; ++k)
            sum += row[k] * col[k], magnitudes += std::abs(row[k] * col[k]);
          const auto at = static_cast<std::size_t>(c.y_offset + z * p.y_batch_stride + i * p.ldy + j);
          expected[at] = activate(p.activation, static_cast<float>(sum));
          // No activation here has a slope above 1.13; its own error is a few units of the last place.
          tolerance[at] = 1.13 * sum_tolerance(dtype(), p.k + 1, magnitudes, sum) + 1e-6 * std::abs(sum);
        }
    expect_near(values(y), expected, [&](std::size_t i) { return tolerance[i]; });
  }

  std::size_t workspace_bytes(const Case& c) {
    if constexpr (kHasCuda)
      return gemm::cuda_workspace_bytes(c.problem, cuda::multiprocessor_count(ctx().device().index));
    else
      return 0;
  }

  void run(const Case& c, const Tensor& a, const Tensor& b, const Tensor& bias, Tensor& y) {
    if constexpr (kHasCuda) {
      const std::size_t bytes = workspace_bytes(c);
      Tensor workspace = empty(ctx(), {static_cast<std::int64_t>(bytes)}, DType::u8);
      gemm::cuda(ctx().stream(), c.problem, at(a, c.a_offset), at(b, c.b_offset),
                 c.bias ? bias.raw() : nullptr, const_cast<void*>(at(y, c.y_offset)),
                 bytes == 0 ? nullptr : workspace.raw());
    }
  }

  /// Values that TF32 and the target's type hold exactly.
  std::vector<double> operand(Random& random, std::int64_t count) {
    std::vector<double> values = random.reals(count);
    for (double& value : values)
      value = rounded(value, dtype() == DType::f32 && !exact_ ? DType::f16 : dtype());
    if (exact_ && dtype() == DType::f32)
      for (double& value : values) value = static_cast<float>(value);
    return values;
  }
  bool exact_ = true;

 private:
  Tensor store(const std::vector<double>& logical, std::int64_t batch, std::int64_t lines, std::int64_t k,
               bool k_outermost, std::int64_t pitch, std::int64_t offset) {
    const std::int64_t stored_lines = k_outermost ? k : lines;
    std::vector<double> stored(static_cast<std::size_t>(offset + batch * stored_lines * pitch), kNan);
    for (std::int64_t z = 0; z < batch; ++z)
      for (std::int64_t i = 0; i < lines; ++i)
        for (std::int64_t j = 0; j < k; ++j)
          stored[static_cast<std::size_t>(offset + z * stored_lines * pitch +
                                          (k_outermost ? j * pitch + i : i * pitch + j))] =
              logical[static_cast<std::size_t>((z * lines + i) * k + j)];
    return tensor({static_cast<std::int64_t>(stored.size())}, stored);
  }
  const void* at(const Tensor& x, std::int64_t offset) const {
    return static_cast<const char*>(x.raw()) + offset * static_cast<std::int64_t>(item_bytes(dtype()));
  }
};

TEST_P(Gemm, MatchesTheDefinitionOnRandomProblems) {
  Random random(1);
  const int cases = sweep(dtype() == DType::f32 ? 2000 : 500);
  for (int i = 0; i < cases && !HasFailure(); ++i) check(random_case(random, dtype()), random);
}

TEST_P(Gemm, Tf32MatchesOnInputsThatItHolds) {
  if (dtype() != DType::f32) GTEST_SKIP() << "TF32 is a way to multiply f32";
  Random random(2);
  exact_ = false;
  for (int i = 0; i < sweep(500) && !HasFailure(); ++i) {
    Case c = random_case(random, dtype());
    c.problem.allow_tf32 = true;
    check(c, random);
  }
}

TEST_P(Gemm, EveryTileAndSplitIsReached) {
  Random random(3);
  for (const auto& [m, n, k] :
       {std::array{1024, 1280, 96}, std::array{4096, 64, 128}, std::array{300, 260, 70},
        std::array{40, 56, 3000}, std::array{10, 10, 1600}, std::array{130, 129, 1111}})
    for (const bool b_transposed : {false, true}) {
      Case c = dense(dtype(), m, n, k);
      c.problem.b_transposed = b_transposed;
      if (b_transposed) c.problem.ldb = k;
      c.bias = true;
      check(c, random);
    }
}

TEST_P(Gemm, NoTermsGiveTheActivatedBias) {
  Random random(4);
  for (const auto& [m, n] : {std::array{1, 1}, std::array{9, 70}, std::array{150, 131}})
    for (const bool bias : {false, true}) {
      Case c = dense(dtype(), m, n, 0);
      c.bias = bias;
      c.problem.activation = Activation::relu();
      check(c, random);
    }
}

TEST_P(Gemm, ANaNStaysInItsRow) {
  const Case c = dense(dtype(), 70, 66, 90);
  std::vector<double> a(70 * 90, 1), b(90 * 66, 1);
  a[5 * 90 + 89] = kNan;
  Tensor y = full(ctx(), {70 * 66}, kUntouched, dtype());
  run(c, tensor({70 * 90}, a), tensor({90 * 66}, b), {}, y);
  std::vector<double> expected(70 * 66, 90);
  std::fill_n(expected.begin() + 5 * 66, 66, kNan);
  expect_equal(values(y), expected);
}

TEST_P(Gemm, ASplitSumIsTheSameEveryTime) {
  Random random(5);
  const Case c = dense(dtype(), 64, 72, 4000);
  const Tensor a = tensor({64 * 4000}, operand(random, 64 * 4000)),
               b = tensor({4000 * 72}, operand(random, 4000 * 72));
  ASSERT_GT(workspace_bytes(c), 0u);
  std::vector<double> first;
  for (int i = 0; i < 5; ++i) {
    Tensor y = full(ctx(), {64 * 72}, kUntouched, dtype());
    run(c, a, b, {}, y);
    if (i == 0) first = values(y);
    expect_equal(values(y), first);
  }
}

TEST_P(Gemm, F32IsNotRoundedToTf32) {
  if (dtype() != DType::f32) GTEST_SKIP() << "about f32";
  const double x = 1 + 0x1p-12;  // C19: TF32 would give 1
  for (const std::int64_t extent : {1, 40, 200}) {
    const Case c = dense(dtype(), extent, extent, 1);
    Tensor y = full(ctx(), {extent * extent}, kUntouched, dtype());
    run(c, full(ctx(), {extent}, x, dtype()), full(ctx(), {extent}, 1, dtype()), {}, y);
    expect_equal(values(y), std::vector<double>(static_cast<std::size_t>(extent * extent), x));
  }
}

TEST(FastDivmod, DividesEvery32BitNumber) {
  Random random(6);
  const auto any = [&] {
    return static_cast<std::uint32_t>(random.integer(0, 0xFFFFFFFF) >> random.integer(0, 31));
  };
  for (int i = 0; i < 100000; ++i) {
    const std::uint32_t divisor = std::max(any(), 1u);
    const std::uint32_t n =
        i % 4 == 0 ? 0xFFFFFFFFu - any() % 3 : any() / divisor * divisor - static_cast<unsigned>(i % 2);
    std::uint32_t remainder;
    ASSERT_EQ(FastDivmod(divisor).divide(n, remainder), n / divisor) << n << " / " << divisor;
    ASSERT_EQ(remainder, n % divisor);
  }
}

TEST(TileChoice, SplitsCoverTheSumAndFitTheWorkspace) {
  constexpr gemm::TileShape kTiles[] = {{128, 128, 16, 100}, {64, 64, 16, 80}, {32, 32, 16, 45}};
  Random random(7);
  const auto any = [&] { return random.integer(1, 1 << random.integer(0, 14)); };
  for (int i = 0; i < 2000; ++i) {
    const gemm::ProductShape product = {any(), any(), any() - 1, random.integer(1, 4)};
    for (const bool may_split : {false, true}) {
      const auto [tile, splits, bytes] = gemm::choose_tile(kTiles, product, 132, may_split);
      const std::int64_t part = gemm::k_per_split(kTiles[tile], product.k, splits);
      EXPECT_EQ(part % kTiles[tile].k, 0);
      EXPECT_GE(part * splits, product.k);
      EXPECT_LT(part * (splits - 1), std::max<std::int64_t>(product.k, 1));  // no split is empty
      const std::int64_t sums = product.rows * ((product.cols + 3) / 4 * 4) * product.batch * splits;
      EXPECT_EQ(bytes, splits == 1 ? 0u : static_cast<std::size_t>(sums) * sizeof(float));
      EXPECT_TRUE(may_split || splits == 1);
    }
  }
}

TEST(TileChoice, FillsTheDevice) {
  constexpr gemm::TileShape kTiles[] = {{128, 128, 64, 640}, {64, 64, 64, 420}};
  EXPECT_EQ(gemm::choose_tile(kTiles, {8192, 8192, 4096, 1}, 132, true).tile,
            0);                                                                 // large: the efficient tile
  const auto small = gemm::choose_tile(kTiles, {49, 512, 4608, 1}, 132, true);  // 7 x 7 pixels: split sums
  EXPECT_GT(small.splits, 4);
}

INSTANTIATE_TEST_SUITE_P(All, Gemm,
                         ::testing::ValuesIn(targets({Backend::cuda}, {DType::f32, DType::f16, DType::bf16})),
                         target_name);

}  // namespace
}  // namespace burin::test
