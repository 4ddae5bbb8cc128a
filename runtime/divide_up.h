#pragma once
// Private.

#include <cstdint>

namespace burin {

/// a / b rounded up, for a >= 0 and b >= 1.
constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace burin
