#include <burin/runtime/tensor.h>
#include <support/test_support.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>

namespace burin::test {
namespace {

using ::testing::ElementsAre;

// Views: pure arithmetic on shapes and strides, so the CPU is enough
class View : public ::testing::Test {
 protected:
  Context ctx_;
  Tensor counted(const Shape& shape) {
    return arange(ctx_, shape.count(), 0, 1, DType::i32).reshape(shape.extents());
  }
  std::vector<std::int32_t> values(const Tensor& x) { return to_vector<std::int32_t>(ctx_, x); }
};

TEST_F(View, SharesMemory) {
  const Tensor x = counted({2, 3});
  EXPECT_EQ(x.reshape({3, 2}).raw(), x.raw());
  Tensor column = x.slice(1, 1, 2);
  Tensor nine = full(ctx_, {}, 9, DType::i32);
  copy(ctx_, column, nine);
  EXPECT_THAT(values(x), ElementsAre(0, 9, 2, 3, 9, 5));
}

TEST_F(View, ReshapeOfDenseTensors) {
  const Tensor x = counted({2, 3, 4});
  EXPECT_EQ(x.reshape({4, -1}).shape(), Shape({4, 6}));
  EXPECT_EQ(x.reshape({-1}).shape(), Shape({24}));
  EXPECT_EQ(x.reshape({1, 24, 1}).shape(), Shape({1, 24, 1}));
  EXPECT_EQ(counted({1}).reshape(IntList{}).rank(), 0);
  EXPECT_EQ(counted({0, 3}).reshape({3, 0, 7}).shape(), Shape({3, 0, 7}));
  EXPECT_THROW(x.reshape({5, 5}), ShapeError);
  EXPECT_THROW(x.reshape({-1, -1}), ShapeError);
  EXPECT_THROW(x.reshape({-1, 5}), ShapeError);
  EXPECT_THROW(x.reshape({-2, -12}), ShapeError);
  EXPECT_THROW(counted({0}).reshape({-1, 0}), ShapeError);
}

TEST_F(View, ReshapeOfStridedTensors) {
  const Tensor x = counted({4, 6});
  const Tensor left = x.slice(1, 0, 3);  // strides [6, 1]
  EXPECT_THAT(values(left.reshape({2, 2, 3}).select(0, 1)), ElementsAre(12, 13, 14, 18, 19, 20));
  EXPECT_EQ(left.reshape({4, 1, 3, 1}).raw(), left.raw());
  EXPECT_THROW(left.reshape({12}), ShapeError);
  EXPECT_THROW(x.transpose(0, 1).reshape({24}), ShapeError);
  EXPECT_THAT(values(x.transpose(0, 1).reshape({2, 3, 4}).select(2, 0)), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(values(counted({2}).unsqueeze(1).expand({2, 3}).reshape({2, 3, 1})),
              ElementsAre(0, 0, 0, 1, 1, 1));
}

TEST_F(View, ReshapeMatchesACopyWhereverItIsPossible) {
  Random random;
  int views = 0;
  for (int round = 0; round < sweep(2000) && !HasFailure(); ++round) {
    IntList extents;
    for (auto rank = random.integer(1, 4); rank > 0; --rank) extents.push_back(random.integer(1, 4));
    Tensor x = with_strides(ctx_, counted(Shape(extents)), random.choice(kVariants));
    if (random.chance(0.3)) x = x.transpose(0, -1);
    std::int64_t rest = x.count();
    IntList target;
    while (rest > 1 && target.size() < 6) {
      const std::int64_t factor = random.integer(1, rest);
      if (rest % factor != 0) continue;
      target.push_back(factor);
      rest /= factor;
    }
    target.push_back(rest);
    try {
      const Tensor y = x.reshape(target);
      ++views;
      EXPECT_EQ(values(y), values(contiguous(ctx_, x).reshape(target))) << "round " << round;
    } catch (const ShapeError& error) {
      EXPECT_FALSE(x.is_contiguous()) << error.what();
    }
  }
  EXPECT_GT(views, sweep(2000) / 4);
}

TEST_F(View, PermuteAndTranspose) {
  const Tensor x = counted({2, 3, 4});
  EXPECT_EQ(x.permute({2, 0, 1}).shape(), Shape({4, 2, 3}));
  EXPECT_EQ(x.permute({2, 0, 1}).strides(), (Strides{1, 12, 4}));
  EXPECT_EQ(x.permute({-1, 0, 1}).strides(), x.permute({2, 0, 1}).strides());
  EXPECT_THAT(values(counted({2, 3}).transpose(0, 1)), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THROW(x.permute({0, 1}), ShapeError);
  EXPECT_THROW(x.permute({0, 1, 1}), ShapeError);
  EXPECT_THROW(x.permute({0, 1, 3}), ShapeError);
  EXPECT_THROW(x.permute({0, 1, std::int64_t{1} << 32}), ShapeError);
  EXPECT_THROW(x.transpose(0, 3), ShapeError);
}

TEST_F(View, SliceAndSelect) {
  const Tensor x = counted({5});
  EXPECT_THAT(values(x.slice(0, 1, 4)), ElementsAre(1, 2, 3));
  EXPECT_THAT(values(x.slice(0, 0, 5, 2)), ElementsAre(0, 2, 4));
  EXPECT_THAT(values(x.slice(0, 1, 5, 3)), ElementsAre(1, 4));
  EXPECT_THAT(values(x.slice(0, -2, 100)), ElementsAre(3, 4));
  EXPECT_THAT(values(x.slice(-1, -100, -3)), ElementsAre(0, 1));
  EXPECT_THAT(values(x.slice(0, 1, std::numeric_limits<std::int64_t>::max(), 2)), ElementsAre(1, 3));
  EXPECT_EQ(x.slice(0, 3, 1).shape(), Shape({0}));
  EXPECT_EQ(x.slice(0, 5, 5).count(), 0);
  EXPECT_EQ(x.slice(0, 0, 5, std::numeric_limits<std::int64_t>::max()).count(), 1);
  EXPECT_THROW(x.slice(0, 0, 5, 0), ShapeError);
  EXPECT_THROW(x.slice(1, 0, 5), ShapeError);
  EXPECT_EQ(values(x.select(0, -1)), std::vector<std::int32_t>{4});
  EXPECT_EQ(x.select(0, 2).rank(), 0);
  EXPECT_THROW(x.select(0, 5), ShapeError);
  EXPECT_THROW(x.select(0, -6), ShapeError);
}

TEST_F(View, ExpandSqueezeUnsqueezeFlatten) {
  const Tensor x = counted({3, 1});
  EXPECT_THAT(values(x.expand({2, 3, 2})), ElementsAre(0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2));
  EXPECT_THROW(x.expand({4, 1}), ShapeError);
  EXPECT_THROW(x.expand({3}), ShapeError);
  EXPECT_EQ(counted({1, 3, 1, 2}).squeeze().shape(), Shape({3, 2}));
  EXPECT_EQ(counted({1, 3, 1, 2}).squeeze(-2).shape(), Shape({1, 3, 2}));
  EXPECT_THROW(counted({1, 3}).squeeze(1), ShapeError);
  EXPECT_EQ(x.unsqueeze(0).shape(), Shape({1, 3, 1}));
  EXPECT_EQ(x.unsqueeze(-1).shape(), Shape({3, 1, 1}));
  EXPECT_THROW(x.unsqueeze(3), ShapeError);
  EXPECT_EQ(counted({2, 3, 4, 5}).flatten(1, 2).shape(), Shape({2, 12, 5}));
  EXPECT_EQ(counted({2, 3}).flatten().shape(), Shape({6}));
  EXPECT_EQ(counted({}).flatten().shape(), Shape({1}));
  EXPECT_EQ(counted({0, 3}).flatten(0, 1).shape(), Shape({0}));
  EXPECT_THROW(counted({2, 3}).flatten(1, 0), ShapeError);
}

// Density, layout, overlap
TEST(Density, L5_StridesOfExtentOneDoNotMatter) {
  std::int32_t data[6] = {0, 1, 2, 3, 4, 5};
  Context ctx;
  for (const std::int64_t odd : {0, 1, 3, 999}) {
    const Tensor x = Tensor::from_blob(data, {2, 1, 3}, Strides{3, odd, 1}, DType::i32);
    EXPECT_TRUE(x.is_contiguous()) << odd;
    EXPECT_FALSE(x.has_internal_overlap()) << odd;
    EXPECT_EQ(contiguous(ctx, x).raw(), x.raw());
    EXPECT_THAT(to_vector<std::int32_t>(ctx, x), ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_EQ(x.reshape({6}).shape(), Shape({6}));
  }
  EXPECT_FALSE(Tensor::from_blob(data, {2, 2}, Strides{3, 1}, DType::i32).is_contiguous());
}

TEST(Density, ChannelsLastIsDecidedOnce) {
  Context ctx;
  const auto last = [&](const Shape& shape) { return empty(ctx, shape, DType::f32, Layout::channels_last); };
  EXPECT_TRUE(last({2, 3, 4, 5}).is_channels_last());
  EXPECT_EQ(last({2, 3, 4, 5}).strides(), (Strides{60, 1, 15, 3}));
  EXPECT_TRUE(last({1, 3, 1, 5}).is_channels_last());
  EXPECT_FALSE(last({2, 1, 4, 5}).is_channels_last()) << "one channel: both orders fit";
  EXPECT_FALSE(last({2, 3, 1, 1}).is_channels_last()) << "one pixel: both orders fit";
  EXPECT_TRUE(last({2, 3, 1, 1}).is_dense_in(Layout::channels_last));
  EXPECT_FALSE(last({0, 3, 4, 5}).is_channels_last()) << "empty: both orders fit";
  EXPECT_FALSE(empty(ctx, {2, 3, 4, 5}).is_channels_last());
  EXPECT_FALSE(empty(ctx, {2, 3, 4}).is_dense_in(Layout::channels_last));
  EXPECT_TRUE(empty(ctx, {2, 4, 5, 3}).permute({0, 3, 1, 2}).is_channels_last());
  EXPECT_FALSE(last({2, 3, 4, 5}).slice(1, 0, 2).is_channels_last());
  EXPECT_THROW(empty(ctx, {2, 3}, DType::f32, Layout::channels_last), ShapeError);
}

TEST(Density, InternalOverlap) {
  Context ctx;
  EXPECT_FALSE(empty(ctx, {2, 3}).transpose(0, 1).has_internal_overlap());
  EXPECT_FALSE(empty(ctx, {4, 6}).slice(1, 0, 6, 2).has_internal_overlap());
  EXPECT_TRUE(empty(ctx, {1, 3}).expand({2, 3}).has_internal_overlap());
  EXPECT_FALSE(empty(ctx, {1}).expand({1, 1}).has_internal_overlap());
  EXPECT_FALSE(empty(ctx, {1, 0}).expand({5, 0}).has_internal_overlap());
  float data[8] = {};
  EXPECT_TRUE(Tensor::from_blob(data, {3, 3}, Strides{2, 1}, DType::f32).has_internal_overlap());
}

TEST(Density, MayOverlap) {
  Context ctx;
  const Tensor x = empty(ctx, {6});
  EXPECT_TRUE(may_overlap(x.slice(0, 0, 4), x.slice(0, 3, 6)));
  EXPECT_FALSE(may_overlap(x.slice(0, 0, 3), x.slice(0, 3, 6)));
  EXPECT_FALSE(may_overlap(x.slice(0, 3, 3), x));
  EXPECT_FALSE(may_overlap(x, Tensor()));
  EXPECT_FALSE(may_overlap(x, empty(ctx, {6})));
}

// Owning and borrowing memory
TEST(FromBlob, RunsTheDeleterOnce) {
  float data[6] = {0, 1, 2, 3, 4, 5};
  int deleted = 0;
  {
    Tensor view;
    {
      const Tensor x = Tensor::from_blob(data, {2, 3}, DType::f32, Device::cpu(), [&](void* p) {
        EXPECT_EQ(p, data);
        ++deleted;
      });
      EXPECT_EQ(x.raw(), data);
      view = x.slice(0, 1, 2);
    }
    EXPECT_EQ(deleted, 0);
    EXPECT_EQ(view.data<float>()[0], 3.0f);
  }
  EXPECT_EQ(deleted, 1);
}

TEST(FromBlob, RunsTheDeleterIfItThrows) {
  float data[6] = {};
  int deleted = 0;
  const auto deleter = [&](void*) { ++deleted; };
  EXPECT_THROW(Tensor::from_blob(data, {2, 3}, Strides{1}, DType::f32, Device::cpu(), deleter), ShapeError);
  EXPECT_THROW(Tensor::from_blob(data, {2, 3}, Strides{-3, 1}, DType::f32, Device::cpu(), deleter),
               ShapeError);
  EXPECT_THROW(Tensor::from_blob(reinterpret_cast<char*>(data) + 1, {1}, DType::f32, Device::cpu(), deleter),
               ShapeError);
  EXPECT_THROW(Tensor::from_blob(nullptr, {1}, DType::f32, Device::cpu(), deleter), ShapeError);
  EXPECT_THROW(Tensor::from_blob(data, {2, 2}, Strides{std::int64_t{1} << 62, std::int64_t{1} << 62},
                                 DType::f32, Device::cpu(), deleter),
               ShapeError);
  EXPECT_EQ(deleted, 5);
  EXPECT_EQ(Tensor::from_blob(nullptr, {0, 3}, DType::f32).count(), 0);
}

TEST(FromBlob, RefusesSizesThatAddressesCannotCount) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  double value = 0;
  EXPECT_THROW(Tensor::from_blob(&value, {std::int64_t{1} << 60}, DType::f64), ShapeError);
  // Views multiply strides, those of empty tensors too.
  EXPECT_THROW(Tensor::from_blob(nullptr, {0, 3}, {kMost, kMost}, DType::f32), ShapeError);
  EXPECT_EQ(Tensor::from_blob(&value, {1, 1}, {kMost, 1}, DType::f64).unsqueeze(0).rank(), 3);
}

TEST(Memory, CudaMemoryWithoutCudaIsADeviceError) {
  if (cuda_availability().count > 0) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THROW(make_pinned_resource(), DeviceError);
  EXPECT_THROW(make_cuda_resource(0), DeviceError);
}

TEST(Memory, SizesNearTheLargestAreRefused) {
  Context ctx;
  constexpr std::int64_t k62 = std::int64_t{1} << 62;
  // Rounded up to the alignment, the bytes of these would wrap to 0.
  EXPECT_THROW(empty(ctx, {k62 - 1}, DType::f32), OutOfMemory);
  EXPECT_THROW(empty(ctx, {std::numeric_limits<std::int64_t>::max()}, DType::bf16), OutOfMemory);
  EXPECT_THROW(empty(ctx, {k62 / 2 - 1}, DType::f64), OutOfMemory);
  const Tensor one = zeros(ctx, {1});
  expect_error<ShapeError>([&] { contiguous(ctx, one.expand({k62})); }, "is too large");
  expect_error<ShapeError>([&] { to(ctx, one.expand({k62}), DType::f64); }, "is too large");
}

TEST(TensorOfABuffer, MustLieInsideIt) {
  const auto buffer = Buffer::allocate(make_cpu_resource(), 40, Stream(Device::cpu()));
  EXPECT_EQ(Tensor(buffer, DType::f32, {2, 5}, Strides{5, 1}).count(), 10);
  EXPECT_EQ(Tensor(buffer, DType::f32, {4}, Strides{3}).count(), 4);
  EXPECT_EQ(Tensor(buffer, DType::f32, {0}, Strides{1}, 10).count(), 0);
  EXPECT_EQ(Tensor(buffer, DType::f32, {3}, Strides{-4}, 9).count(), 3);
  EXPECT_THROW(Tensor(buffer, DType::f32, {2, 5}, Strides{5, 1}, 1), ShapeError);
  EXPECT_THROW(Tensor(buffer, DType::f32, {11}, Strides{1}), ShapeError);
  EXPECT_THROW(Tensor(buffer, DType::f32, {3}, Strides{-4}, 7), ShapeError);
  EXPECT_THROW(Tensor(buffer, DType::f32, {1}, Strides{1}, -1), ShapeError);
  EXPECT_THROW(Tensor(buffer, DType::f32, {1}, Strides{1}, std::numeric_limits<std::int64_t>::max()),
               ShapeError);
  EXPECT_THROW(Tensor(nullptr, DType::f32, {1}, Strides{1}), ShapeError);
}

TEST(TensorOfABuffer, TypedAccessIsChecked) {
  Context ctx;
  Tensor x = zeros(ctx, {2}, DType::i32);
  EXPECT_NO_THROW(x.data<std::int32_t>());
  EXPECT_THROW(x.data<float>(), DTypeError);
  EXPECT_THROW(Tensor().data<float>(), ShapeError);
  EXPECT_FALSE(Tensor().defined());
}

TEST(TensorOfABuffer, OutlivesItsContext) {
  Tensor x;
  {
    Context ctx;
    x = full(ctx, {3}, 2);
  }
  EXPECT_EQ(x.data<float>()[2], 2.0f);
}

// Factories and copies, on every device and type
class Factory : public OnEachTarget {};

INSTANTIATE_TEST_SUITE_P(All, Factory,
                         ::testing::ValuesIn(targets({Backend::cpu, Backend::cuda},
                                                     {DType::f32, DType::f16, DType::bf16, DType::f64,
                                                      DType::i8, DType::u8, DType::i32, DType::i64,
                                                      DType::boolean})),
                         target_name);

TEST_P(Factory, FillsAndCounts) {
  const double one = 1;
  expect_equal(values(zeros(ctx(), {2, 2}, dtype())), {0, 0, 0, 0});
  expect_equal(values(full(ctx(), {3}, one, dtype())), {1, 1, 1});
  expect_equal(values(full(ctx(), {}, one, dtype())), {1});
  EXPECT_EQ(empty(ctx(), {2, 0}, dtype()).count(), 0);
  EXPECT_EQ(zeros(ctx(), {2, 0}, dtype()).shape(), Shape({2, 0}));
  EXPECT_EQ(empty(ctx(), {2, 3}, dtype()).bytes(), 6 * item_bytes(dtype()));
  EXPECT_EQ(empty(ctx(), {2, 3}, dtype()).device(), ctx().device());
  EXPECT_THROW(empty(ctx(), {std::int64_t{1} << 62}, DType::i64), ShapeError);
  if (dtype() == DType::boolean) return;
  expect_equal(values(arange(ctx(), 5, 3, 2, dtype())), {3, 5, 7, 9, 11});
  EXPECT_EQ(arange(ctx(), 0, 0, 1, dtype()).shape(), Shape({0}));
}

TEST_P(Factory, FromHostAndBack) {
  with_any_dtype(dtype(), "test", [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      std::vector<T> host;
      for (int i = 0; i < 6; ++i) host.push_back(convert<T>(i));
      const Tensor x = from_host(ctx(), host, {2, 3});
      EXPECT_EQ(x.dtype(), dtype());
      EXPECT_EQ(to_vector<T>(ctx(), x), host);
      EXPECT_EQ(to_vector<T>(ctx(), x.transpose(0, 1))[1], host[3]);
      EXPECT_THROW(from_host(ctx(), host, {7}), ShapeError);
      EXPECT_TRUE(to_vector<T>(ctx(), x.slice(0, 0, 0)).empty());
    }
  });
}

TEST_P(Factory, FromHostTakesBytesOfAnyAlignment) {
  const float values[] = {1, -2, 3};
  unsigned char bytes[sizeof values + 1];
  std::memcpy(bytes + 1, values, sizeof values);
  const Tensor x = from_host_bytes(ctx(), bytes + 1, sizeof values, {3}, DType::f32);
  EXPECT_THAT(to_vector<float>(ctx(), x), ElementsAre(1, -2, 3));
}

TEST_P(Factory, CopiesBetweenAllStrides) {
  Random random;
  for (int round = 0; round < sweep(300) && !HasFailure(); ++round) {
    IntList extents;
    for (auto rank = random.integer(0, 5); rank > 0; --rank)
      extents.push_back(random.chance(0.05) ? 0 : random.integer(1, 6));
    const Shape shape(extents);
    const auto expected = random.integers(shape.count(), 0, dtype() == DType::boolean ? 1 : 100);
    const Tensor src = with_strides(ctx(), tensor(shape, expected), random.choice(kVariants));
    Tensor dst = with_strides(ctx(), zeros(ctx(), shape, dtype()), random.choice(kVariants));
    copy(ctx(), dst, src);
    expect_equal(values(dst), expected);
    const Tensor dense = contiguous(ctx(), src);
    EXPECT_TRUE(dense.is_contiguous());
    expect_equal(values(dense), expected);
    EXPECT_EQ(dense.raw() == src.raw(), src.is_contiguous());
    const Tensor copied = clone(ctx(), src);
    EXPECT_TRUE(copied.count() == 0 || copied.raw() != src.raw());
    expect_equal(values(copied), expected);
    if (shape.rank() == 4) {
      const Tensor last = to(ctx(), src, Layout::channels_last);
      EXPECT_TRUE(last.is_dense_in(Layout::channels_last));
      expect_equal(values(last), expected);
    }
    const Tensor host = to(ctx(), src, Device::cpu());
    EXPECT_TRUE(host.device().is_cpu());
    expect_equal(values(host), expected);
    expect_equal(values(to(ctx(), host, ctx().device())), expected);
  }
}

TEST_P(Factory, CopyBroadcastsTheSourceAndLeavesTheRestAlone) {
  Tensor whole = zeros(ctx(), {3, 4}, dtype());
  Tensor inner = whole.slice(0, 1, 3).slice(1, 1, 3);
  copy(ctx(), inner, tensor({2}, {1, 1}));
  expect_equal(values(whole), {0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0});
}

TEST_P(Factory, LargeCopies) {
  const Tensor x = arange(ctx(), 300 * 1000, 0, 1, DType::f32).reshape({300, 1000});
  const Tensor y = contiguous(ctx(), to(ctx(), to(ctx(), x, DType::f64).transpose(0, 1), DType::f32));
  const std::vector<float> values = to_vector<float>(ctx(), y);
  for (std::int64_t i = 0; i < 1000; i += 37)
    for (std::int64_t j = 0; j < 300; j += 11)
      ASSERT_EQ(values[static_cast<std::size_t>(i * 300 + j)], static_cast<float>(j * 1000 + i));
}

TEST_P(Factory, CopyRefusesWhatDoesNotFit) {
  Tensor x = tensor({2, 2}, {1, 0, 0, 1});
  EXPECT_THROW(copy(ctx(), x, tensor({3}, {1, 1, 1})), ShapeError);
  EXPECT_THROW(copy(ctx(), x, x.transpose(0, 1)), ShapeError);
  Tensor repeated = x.slice(0, 0, 1).expand({2, 2});
  EXPECT_THROW(copy(ctx(), repeated, tensor({2, 2}, {1, 1, 1, 1})), ShapeError);
  Tensor row = x.select(0, 0);
  EXPECT_THROW(copy(ctx(), row, x), ShapeError);
  Tensor undefined;
  EXPECT_THROW(copy(ctx(), undefined, x), ShapeError);
  EXPECT_THROW(copy(ctx(), x, undefined), ShapeError);
  EXPECT_NO_THROW(copy(ctx(), x, x));
  expect_equal(values(x), {1, 0, 0, 1});
}

TEST_P(Factory, FailsCleanlyWhenMemoryRunsOut) {
  expect_clean_allocation_failures(ctx().device(), [&](Context& failing) {
    const Tensor x = zeros(failing, {2, 3}, dtype());
    contiguous(failing, x.transpose(0, 1));
    to(failing, x, dtype() == DType::f32 ? DType::f64 : DType::f32);
  });
}

}  // namespace
}  // namespace burin::test
