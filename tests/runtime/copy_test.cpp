// Copies between element types, strides and devices; fill and arange; asynchronous copies.

#include <support/test_support.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace burin::test {
namespace {

constexpr DType kAllTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f64,    DType::i8,
                               DType::u8,  DType::i32, DType::i64,  DType::boolean};
class CopyTest : public OnEachTarget {
 protected:
  Device device() const { return GetParam().device(); }
  Context& context_of(Device where) { return where == device() ? ctx() : cpu_; }
  Context cpu_;
};
INSTANTIATE_TEST_SUITE_P(All, CopyTest,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda}, {DType::f32})),
                         target_name);

/// 0, 1, 2, ... in row-major order, small enough to be exact in every type (0 or 1 for bool).
std::vector<double> counting(std::int64_t count, DType dtype) {
  std::vector<double> values(static_cast<std::size_t>(count));
  const int modulus = dtype == DType::boolean ? 2 : 127;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>((i * 31 + 1) % modulus);
  return values;
}

/// Values at and around every type's limits and rounding points.
std::vector<double> edge_values() {
  std::vector<double> values = {0.0,
                                -0.0,
                                0.5,
                                0.999,
                                1.5,
                                -0.5,
                                -1.5,
                                1e300,
                                -1e300,
                                1e-300,
                                5e-324,
                                1e-40,
                                6e-8,
                                2.9e-8,
                                std::numeric_limits<double>::infinity(),
                                -std::numeric_limits<double>::infinity(),
                                std::numeric_limits<double>::quiet_NaN(),
                                65504,
                                65519.999,
                                65520,
                                1 + 0x1p-11,
                                1 + 0x1p-11 + 0x1p-40,
                                1 + 0x3p-11,
                                1 + 0x1p-8,
                                1 + 0x1p-8 + 0x1p-50,
                                3.3895e38};
  for (const int bits : {7, 8, 15, 24, 31, 32, 53, 63, 64})
    for (const double delta : {-1.0, -0.5, 0.0, 0.5, 1.0})
      for (const double sign : {-1.0, 1.0}) values.push_back(sign * (std::ldexp(1.0, bits) + delta));
  return values;
}

template <class T>
bool same(T a, T b) {
  const auto is_nan = [](T x) {
    if constexpr (std::is_integral_v<T>)
      return false;
    else
      return std::isnan(static_cast<double>(convert<double>(x)));
  };
  return std::memcmp(&a, &b, sizeof(T)) == 0 || (is_nan(a) && is_nan(b));
}

template <class T>
std::vector<T> host_values(Context& ctx, const Tensor& x) {
  const Tensor host = contiguous(ctx, to(ctx, x, Device::cpu()));
  std::vector<T> values;  // not to_vector: vector<bool> has no elements to point at
  for (std::int64_t i = 0; i < host.count(); ++i) values.push_back(host.data<T>()[i]);
  return values;
}

TEST_P(CopyTest, ConvertsEveryTypeToEveryOther) {
  const std::vector<double> edges = edge_values();
  const auto count = static_cast<std::int64_t>(edges.size());
  for (const DType from : kAllTypes) {
    for (const DType target : kAllTypes) {
      with_any_dtype(from, "test", [&]<class From>() {
        with_any_dtype(target, "test", [&]<class To>() {
          const auto source = std::make_unique<From[]>(edges.size());
          for (std::size_t i = 0; i < edges.size(); ++i) source[i] = convert<From>(edges[i]);
          const Tensor x = from_host_bytes(ctx(), source.get(), edges.size() * sizeof(From), {count}, from);
          const Tensor y = to(ctx(), to(ctx(), x, target), Device::cpu());
          for (std::int64_t i = 0; i < count; ++i)
            ASSERT_TRUE(same(y.data<To>()[i], convert<To>(source[static_cast<std::size_t>(i)])))
                << name(from) << " to " << name(target) << ", element " << i << " ("
                << edges[static_cast<std::size_t>(i)] << ")";
        });
      });
    }
  }
}

TEST_P(CopyTest, ReadsAndWritesAnyStridesOnAnyDevice) {
  const Shape shapes[] = {{},           {5},          {2, 3, 4, 5}, {1, 64, 9, 33}, {2, 40, 31, 8},
                          {0, 3, 2, 2}, {3, 1, 7, 1}, {2, 16, 1, 1}};
  for (const DType dtype : {DType::u8, DType::f16, DType::f32, DType::f64})
    for (const Shape& shape : shapes)
      for (const Variant from : kVariants)
        for (const Variant target : kVariants)
          for (const Device source : {Device::cpu(), device()})
            for (const Device sink : {Device::cpu(), device()}) {
              const std::vector<double> expected = counting(shape.count(), dtype);
              Context& source_ctx = context_of(source);
              Context& sink_ctx = context_of(sink);
              const Tensor x = with_strides(
                  source_ctx, to(source_ctx, from_host(source_ctx, expected, shape), dtype), from);
              Tensor y = with_strides(sink_ctx, full(sink_ctx, shape, 0, dtype), target);
              sink_ctx.synchronize();
              copy(ctx(), y, x);
              ctx().synchronize();
              SCOPED_TRACE(fmt::format("{} {} from {} ({}) to {} ({})", name(dtype), to_string(shape),
                                       name(source), static_cast<int>(from), name(sink),
                                       static_cast<int>(target)));
              expect_equal(values_of(sink_ctx, y), expected);
              if (HasFailure()) return;
            }
}

TEST_P(CopyTest, ConvertsWhileReordering) {
  Random random;
  for (int i = 0; i < sweep(2000); ++i) {
    IntList extents;
    IntList order;
    const auto rank = static_cast<int>(random.integer(1, 6));
    for (int axis = 0; axis < rank; ++axis) {
      extents.push_back(random.chance(0.2) ? random.integer(16, 40) : random.integer(1, 3));
      order.push_back(axis);
    }
    for (int axis = rank - 1; axis > 0; --axis)
      std::swap(order[axis], order[static_cast<int>(random.integer(0, axis))]);
    const DType from = kAllTypes[random.integer(0, 8)];
    const DType target = random.chance(0.5) ? from : kAllTypes[random.integer(0, 8)];
    const bool to_bool = from == DType::boolean || target == DType::boolean;
    const Shape shape(extents);
    if (shape.count() > 50000) continue;
    const std::vector<double> expected = counting(shape.count(), to_bool ? DType::boolean : from);
    const Tensor x = to(ctx(), from_host(ctx(), expected, shape), from).permute(order);
    const Tensor y = contiguous(ctx(), to(ctx(), x, target));
    IntList back = order;
    for (int axis = 0; axis < rank; ++axis) back[static_cast<int>(order[axis])] = axis;
    SCOPED_TRACE(
        fmt::format("{} {} by {} to {}", name(from), to_string(shape), to_string(order), name(target)));
    expect_equal(values(contiguous(ctx(), y.permute(back))), expected);
    if (HasFailure()) return;
  }
}

TEST_P(CopyTest, WritesOnlyTheElementsOfItsView) {
  for (const std::int64_t begin : {0, 1, 2, 4, 8}) {
    Tensor whole = full(ctx(), {3, 40}, 9);
    Tensor view = whole.slice(1, begin, begin + 16);
    copy(ctx(), view, full(ctx(), {3, 16}, 1));
    std::vector<double> expected(120, 9);
    for (std::size_t row = 0; row < 3; ++row)
      std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(row * 40) + begin, 16, 1.0);
    expect_equal(values(whole), expected);
  }
}

TEST_P(CopyTest, RepeatsABroadcastSource) {
  Tensor y = empty(ctx(), {2, 3, 2});
  copy(ctx(), y, from_host(ctx(), std::vector<float>{1, 2, 3}, {3, 1}));
  expect_equal(values(y), {1, 1, 2, 2, 3, 3, 1, 1, 2, 2, 3, 3});
}

TEST_P(CopyTest, RejectsWhatCannotBeCopied) {
  Tensor x = zeros(ctx(), {2, 3});
  Tensor undefined;
  Tensor repeated = zeros(ctx(), {1, 3}).expand({2, 3});
  Tensor shifted = x.reshape({6}).slice(0, 0, 5);
  expect_error<ShapeError>([&] { copy(ctx(), x, undefined); }, "copy: src is undefined");
  expect_error<ShapeError>([&] { copy(ctx(), undefined, x); }, "copy: dst is undefined");
  expect_error<ShapeError>([&] { copy(ctx(), x, zeros(ctx(), {4})); }, "copy");
  expect_error<ShapeError>([&] { copy(ctx(), x, zeros(ctx(), {5, 2, 3})); }, "does not broadcast");
  expect_error<ShapeError>([&] { copy(ctx(), repeated, x); }, "dst overlaps itself");
  expect_error<ShapeError>([&] { copy(ctx(), shifted, x.reshape({6}).slice(0, 1, 6)); }, "dst overlaps src");
}

TEST_P(CopyTest, FillsEveryTypeAtEveryLength) {
  for (const DType dtype : kAllTypes)
    for (std::int64_t count = 0; count < 40; ++count)
      for (const double value : {0.0, 1.0, -1.0, 3.25}) {
        const double stored =
            with_any_dtype(dtype, "test", [&]<class T>() { return convert<double>(convert<T>(value)); });
        expect_equal(values(full(ctx(), {count}, value, dtype)),
                     std::vector<double>(static_cast<std::size_t>(count), stored));
        if (HasFailure()) return;
      }
}

TEST_P(CopyTest, ArangeComputesInF64) {
  for (const DType dtype : kAllTypes) {
    const Tensor x = arange(ctx(), 1000, -3.1, 0.3, dtype);
    with_any_dtype(dtype, "test", [&]<class T>() {
      const std::vector<T> actual = host_values<T>(ctx(), x);
      for (std::size_t i = 0; i < actual.size(); ++i) {
        volatile const double product = static_cast<double>(i) * 0.3;  // rounded: not fused with the sum
        ASSERT_TRUE(same<T>(actual[i], convert<T>(-3.1 + product))) << name(dtype) << " " << i;
      }
    });
  }
}

TEST_P(CopyTest, C15_LargeCopiesReachTheirLastElement) {
  const std::int64_t count = (std::int64_t{1} << 24) + 3;  // past the grid: every thread loops
  const Tensor x = arange(ctx(), count, 0, 1, DType::i32);
  const Tensor y = to(ctx(), to(ctx(), x, DType::f64), DType::i32);
  EXPECT_EQ(host_values<std::int32_t>(ctx(), y.slice(0, count - 2, count)),
            (std::vector<std::int32_t>{(1 << 24) + 1, (1 << 24) + 2}));
}

TEST_P(CopyTest, K13_AsyncCopiesKeepTheirBuffers) {
  if (device().is_cpu()) return;
  constexpr std::int64_t kCount = 1 << 16;
  for (int i = 0; i < 200; ++i) {
    Tensor y = empty(ctx(), {kCount});
    {
      Tensor pinned = empty_pinned(ctx(), {kCount});
      std::fill_n(pinned.data<float>(), kCount, static_cast<float>(i));
      copy_async(ctx(), y, pinned);
    }  // the last owner here is gone while the copy may be queued
    Tensor back = empty_pinned(ctx(), {kCount});
    copy_async(ctx(), back, y);
    y = Tensor();
    ctx().synchronize();
    const float* data = back.data<float>();
    ASSERT_TRUE(std::all_of(data, data + kCount, [&](float value) { return value == static_cast<float>(i); }))
        << i;
  }
}

TEST_P(CopyTest, ATransferIsDoneOnceItWasWaitedFor) {
  const Tensor x = arange(ctx(), 1000);
  Tensor y = empty(ctx(), {1000});
  const Transfer copied = copy_async(ctx(), y, x);
  const Stream other(device());
  copied.then(other);
  x.record_use(other);
  const auto [host, arrived] = to_async(ctx(), y, Device::cpu());
  arrived.wait();
  EXPECT_TRUE(arrived.is_done());
  EXPECT_TRUE(copied.is_done()) << "it was queued before";
  expect_equal(values_of(cpu_, host), values(x));
  EXPECT_EQ(host.raw() == y.raw(), device().is_cpu()) << "what is there already is not copied";
  expect_error<ShapeError>([] { Tensor().record_use(Stream(Device::cpu())); },
                           "record_use: the tensor is undefined");
}

TEST_P(CopyTest, AToAsyncResultIsPackedByTheDevice) {
  const Tensor x = arange(ctx(), 24).reshape({4, 6});
  const auto [host, arrived] = to_async(ctx(), x.transpose(0, 1), Device::cpu());
  arrived.wait();
  expect_equal(values_of(cpu_, host), values(x.transpose(0, 1)));
}

TEST_P(CopyTest, AsyncCopiesRefuseWhatWouldWait) {
  if (device().is_cpu()) return;
  Tensor y = empty(ctx(), {4});
  const Tensor pageable = zeros(cpu_, {4});
  expect_error<UnsupportedError>([&] { copy_async(ctx(), y, pageable); }, "must be pinned");
  Tensor every_other = empty_pinned(ctx(), {8}).slice(0, 0, 8, 2);
  expect_error<UnsupportedError>([&] { copy_async(ctx(), every_other, y); }, "dense");
}

TEST_P(CopyTest, K15_KernelsSeePageableMemoryThatWasCopiedBefore) {
  constexpr std::int64_t kCount = 275000;  // 1.1 MB
  for (int i = 0; i < 100; ++i) {
    Tensor y;
    {
      const std::vector<float> host(kCount, static_cast<float>(i));
      y = to(ctx(), from_host(ctx(), host, {kCount}), DType::f64);
    }
    const std::vector<double> back = to_vector<double>(ctx(), y);
    ASSERT_TRUE(std::all_of(back.begin(), back.end(), [&](double value) { return value == i; })) << i;
  }
}

TEST_P(CopyTest, FailsCleanlyWhenMemoryRunsOut) {
  expect_clean_allocation_failures(device(), [&](Context& local) {
    const Tensor x = arange(local, 60).reshape({2, 3, 10});
    Tensor y = full(local, {10, 3, 2}, 0, DType::f16);
    copy(local, y, x.permute({2, 1, 0}));
    const Tensor host = to(local, x.slice(2, 0, 9, 2), Device::cpu());
    copy(local, y, zeros(cpu_, {2, 3, 10}).permute({2, 1, 0}));
  });
}

}  // namespace
}  // namespace burin::test
