#pragma once

#include <cstdint>

namespace burin {

/// Elements added on each side of the two spatial axes.
struct Padding2d {
  std::int64_t top = 0, left = 0, bottom = 0, right = 0;
  static constexpr Padding2d all(std::int64_t p) { return {p, p, p, p}; }
  bool operator==(const Padding2d&) const = default;
};

}  // namespace burin
