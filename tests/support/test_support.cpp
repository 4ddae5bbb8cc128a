#include <burin/runtime/config.h>
#include <support/test_support.h>

#include <cstdlib>

namespace burin::test {

std::ostream& operator<<(std::ostream& out, const Target& target) {
  return out << name(target.backend) << "_" << name(target.dtype);
}

std::string target_name(const ::testing::TestParamInfo<Target>& info) {
  return std::string(name(info.param.backend)) + "_" + std::string(name(info.param.dtype));
}

std::vector<Target> targets(std::initializer_list<Backend> backends, std::initializer_list<DType> dtypes) {
  std::vector<Target> all;
  for (const Backend backend : backends)
    for (const DType dtype : dtypes) all.push_back({backend, dtype});
  return all;
}

std::string unavailable(const Target& target) {
  if (target.backend == Backend::cpu) return {};
  const CudaAvailability cuda = cuda_availability();
  return cuda.count > 0 ? std::string() : cuda.reason;
}

void OnEachTarget::SetUp() {
  if (const std::string reason = unavailable(GetParam()); !reason.empty()) GTEST_SKIP() << reason;
  ContextOptions options;
  options.memory = memory_ = make_poisoned(make_resource(GetParam().device()));
  ctx_ = std::make_unique<Context>(GetParam().device(), std::move(options));
  ctx_->prefer(GetParam().backend);
}

void OnEachTarget::TearDown() {
  if (!memory_) return;
  EXPECT_NO_THROW(memory_->check());
}

Tensor OnEachTarget::tensor(const Shape& shape, const std::vector<double>& values) {
  return to(*ctx_, from_host(*ctx_, values, shape), dtype());
}

std::vector<double> OnEachTarget::values_of(Context& ctx, const Tensor& x) {
  return to_vector<double>(ctx, to(ctx, x, DType::f64));
}

std::shared_ptr<DebugResource> make_poisoned(std::shared_ptr<MemoryResource> upstream) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr bool kRedZones = false;
#else
  constexpr bool kRedZones = true;
#endif
  const bool on_host = upstream->kind() != MemoryKind::device;
  return std::make_shared<DebugResource>(
      std::move(upstream), DebugOptions{.red_zone_bytes = kRedZones && on_host ? std::size_t{256} : 0});
}

std::shared_ptr<MemoryResource> make_resource(Device device) {
  if constexpr (kHasCuda)
    if (device.is_cuda()) return make_cuda_resource(device.index);
  return make_cpu_resource();
}

void expect_clean_allocation_failures(Device device, const std::function<void(Context&)>& body) {
  for (std::uint64_t n = 1;; ++n) {
    ASSERT_LT(n, 1000u) << "the body never stops allocating";
    auto counting = std::make_shared<CountingResource>(make_resource(device));
    auto failing = std::make_shared<FailingResource>(counting);
    ContextOptions options;
    options.memory = failing;
    options.threads = 1;
    Context ctx(device, std::move(options));
    failing->arm({.nth = n});
    bool failed = false;
    try {
      body(ctx);
    } catch (const OutOfMemory&) {
      failed = true;
    }
    EXPECT_EQ(failed, failing->fired()) << "allocation " << n;
    EXPECT_EQ(counting->counts().live_blocks, 0u) << "allocation " << n << " left blocks behind";
    failing->disarm();
    EXPECT_NO_THROW(body(ctx)) << "after allocation " << n << " failed";
    if (!failed) return;
  }
}

Random::Random(std::uint64_t salt) {
  const char* given = std::getenv("BURIN_TEST_SEED");
  seed_ = (given ? std::strtoull(given, nullptr, 10) : 20260101) + salt;
  engine_.seed(seed_);
  ::testing::Test::RecordProperty("seed", std::to_string(seed_));
}

int sweep(int usual) {
  const char* given = std::getenv("BURIN_TEST_SWEEP");
  return given ? std::atoi(given) : usual;
}

std::vector<double> Random::reals(std::int64_t count, double low, double high) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = real(low, high);
  return values;
}

std::vector<double> Random::integers(std::int64_t count, std::int64_t low, std::int64_t high) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = static_cast<double>(integer(low, high));
  return values;
}

Tensor with_strides(Context& ctx, const Tensor& x, Variant variant) {
  if (variant == Variant::contiguous) return contiguous(ctx, x);
  if (variant == Variant::channels_last && x.rank() == 4) {
    Tensor out = empty(ctx, x.shape(), x.dtype(), Layout::channels_last);
    copy(ctx, out, x);
    return out;
  }
  IntList extents = x.shape().extents();
  Tensor view;
  if (variant ==
      Variant::sliced) {  // every second element of a wider last axis, one element in from each side
    if (x.rank() == 0) return x;
    const int last = x.rank() - 1;
    extents[last] = 2 * extents[last] + 2;
    view = full(ctx, Shape(extents), 77, x.dtype()).slice(last, 1, 2 * x.shape()[last] + 1, 2);
  } else {
    IntList order;
    IntList reversed;
    for (int axis = x.rank() - 1; axis >= 0; --axis) {
      order.push_back(axis);
      reversed.push_back(extents[axis]);
    }
    view = empty(ctx, Shape(reversed), x.dtype()).permute(order);
  }
  copy(ctx, view, x);
  return view;
}

double rounded(double value, DType dtype) {
  return with_any_dtype(dtype, "rounded", [&]<class T>() { return convert<double>(convert<T>(value)); });
}

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f64: return 0x1p-53;
    case DType::f32: return 0x1p-24;
    case DType::f16: return 0x1p-11;
    case DType::bf16: return 0x1p-8;
    default: return 0;
  }
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected,
                 const std::function<double(std::size_t)>& tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  int misses = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const bool both_nan = std::isnan(actual[i]) && std::isnan(expected[i]);
    if (both_nan || actual[i] == expected[i] || std::abs(actual[i] - expected[i]) <= tolerance(i)) continue;
    if (++misses <= 5)
      ADD_FAILURE() << "element " << i << " of " << actual.size() << ": " << fmt::format("{:.9g}", actual[i])
                    << ", expected " << fmt::format("{:.9g}", expected[i]) << ", tolerance "
                    << fmt::format("{:.3g}", tolerance(i));
  }
  if (misses > 5) ADD_FAILURE() << misses << " elements differ in all";
}

void expect_equal(const std::vector<double>& actual, const std::vector<double>& expected) {
  expect_near(actual, expected, [](std::size_t) { return 0.0; });
}

double sum_tolerance(DType dtype, std::int64_t terms, double sum_of_magnitudes, double result) {
  const double accumulated = 4 * std::sqrt(static_cast<double>(terms) + 1) * 0x1p-24 * sum_of_magnitudes;
  return accumulated + (dtype == DType::f32 ? 0.0 : 1.01 * epsilon(dtype) * std::abs(result)) +
         0x1p-24 * (dtype == DType::f16 ? 1 : 0);
}

}  // namespace burin::test
