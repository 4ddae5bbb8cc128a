#include <burin/graph/tensor_difference.h>
#include <burin/runtime/check.h>
#include <burin/runtime/convert.h>
#include <burin/runtime/dispatch.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace burin::detail {
namespace {

/// The shortest text that tells the element from its neighbours.
std::string element_text(const Tensor& x, std::int64_t i) {
  return with_any_dtype(x.dtype(), "verify", [&]<class T>() {
    if constexpr (is_half<T>)
      return fmt::to_string(static_cast<float>(x.data<T>()[i]));
    else if constexpr (sizeof(T) == 1 && !std::is_same_v<T, bool>)
      return fmt::to_string(static_cast<int>(x.data<T>()[i]));
    else
      return fmt::to_string(x.data<T>()[i]);
  });
}

std::vector<double> to_doubles(const Tensor& x) {
  std::vector<double> values(static_cast<std::size_t>(x.count()));
  with_any_dtype(x.dtype(), "verify", [&]<class T>() {
    std::transform(x.data<T>(), x.data<T>() + x.count(), values.begin(), convert<double, T>);
  });
  return values;
}

}  // namespace

std::uint64_t checksum(const Tensor& x) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto* bytes = static_cast<const unsigned char*>(x.raw());
  for (std::size_t i = 0; i < x.bytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

std::string bit_difference(const Tensor& given, const Tensor& expected, const std::string& other) {
  if (given.dtype() != expected.dtype() || given.shape() != expected.shape())
    return fmt::format("is {} {}, and {} is {} {}", name(given.dtype()), given.shape(), other,
                       name(expected.dtype()), expected.shape());
  if (given.bytes() == 0 || std::memcmp(given.raw(), expected.raw(), given.bytes()) == 0) return {};
  const auto* a = static_cast<const char*>(given.raw());
  const auto* b = static_cast<const char*>(expected.raw());
  const std::size_t item = item_bytes(given.dtype());
  std::int64_t different = 0;
  std::int64_t first = 0;
  for (std::int64_t i = given.count() - 1; i >= 0; --i) {
    const std::size_t at = static_cast<std::size_t>(i) * item;
    if (std::memcmp(a + at, b + at, item) == 0) continue;
    ++different;
    first = i;
  }
  return fmt::format("differs from {} in {} of {} elements, first at {}: {} instead of {}", other, different,
                     given.count(), first, element_text(given, first), element_text(expected, first));
}

double relative_error(const Tensor& given, const Tensor& expected) {
  const std::vector<double> a = to_doubles(given);
  const std::vector<double> b = to_doubles(expected);
  double magnitude = 0;
  double error = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isfinite(b[i])) magnitude = std::max(magnitude, std::abs(b[i]));
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return std::numeric_limits<double>::infinity();
    error = std::max(error, std::abs(a[i] - b[i]));
  }
  return error == 0 ? 0 : error / magnitude;
}

}  // namespace burin::detail
