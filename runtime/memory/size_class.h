#pragma once
// Private: the sizes of a CachingPool's blocks.

#include <algorithm>
#include <bit>
#include <cstddef>

namespace burin::detail {

/// Size classes count units of 256 bytes: every one up to 64 units, then 32 for each doubling.
inline constexpr std::size_t kUnitBytes = 256;
inline constexpr unsigned kExactClasses = 64;
inline constexpr unsigned kClassesPerDoubling = 32;
inline constexpr unsigned kClassCount = kExactClasses + 32 * kClassesPerDoubling;

constexpr std::size_t class_bytes(unsigned size_class) {
  if (size_class < kExactClasses) return size_class * kUnitBytes;
  const unsigned above = size_class - kExactClasses;
  const std::size_t steps = kClassesPerDoubling + above % kClassesPerDoubling;
  return (steps << (above / kClassesPerDoubling + 1)) * kUnitBytes;
}

/// No request above this can be served.
inline constexpr std::size_t kLargestRequest = class_bytes(kClassCount - 1);

/// The smallest class that holds `bytes`, which are 1 to kLargestRequest.
constexpr unsigned class_of_request(std::size_t bytes) {
  const std::size_t units = (bytes + kUnitBytes - 1) / kUnitBytes;
  if (units < kExactClasses) return static_cast<unsigned>(units);
  const auto doubling = static_cast<unsigned>(std::bit_width(units)) - 7;  // 0 for 64 to 127 units
  const std::size_t step = std::size_t{2} << doubling;
  const auto steps = static_cast<unsigned>((units + step - 1) / step);  // 32 to 64
  return kExactClasses + doubling * kClassesPerDoubling + steps - kClassesPerDoubling;
}

/// The largest class that a block of `bytes`, a multiple of the unit, can serve.
constexpr unsigned class_of_block(std::size_t bytes) {
  const std::size_t units = bytes / kUnitBytes;
  if (units < kExactClasses) return static_cast<unsigned>(units);
  const auto doubling = static_cast<unsigned>(std::bit_width(units)) - 7;
  const auto steps = static_cast<unsigned>(units >> (doubling + 1));  // 32 to 63
  return std::min(kExactClasses + doubling * kClassesPerDoubling + steps - kClassesPerDoubling,
                  kClassCount - 1);
}

}  // namespace burin::detail
