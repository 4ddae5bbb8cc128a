#pragma once
// Private: division by a number that is known before the kernel starts.

#include <burin/runtime/float16.h>

#include <cstdint>

namespace burin {

/// Quotient and remainder of 32-bit numbers by a multiplication (Granlund, Montgomery: "Division by invariant
/// integers using multiplication", 1994, figure 4.1).
class FastDivmod {
 public:
  FastDivmod() = default;
  /// divisor >= 1.
  explicit FastDivmod(std::uint32_t divisor) : divisor_(divisor) {
    while (shift_ < 32 && (std::uint64_t{1} << shift_) < divisor) ++shift_;
    multiplier_ = static_cast<std::uint32_t>((((std::uint64_t{1} << shift_) - divisor) << 32) / divisor + 1);
  }

  BURIN_HOST_DEVICE std::uint32_t divide(std::uint32_t n) const {
    const std::uint64_t high = (std::uint64_t{n} * multiplier_) >> 32;
    return static_cast<std::uint32_t>((high + n) >> shift_);
  }
  BURIN_HOST_DEVICE std::uint32_t divide(std::uint32_t n, std::uint32_t& remainder) const {
    const std::uint32_t quotient = divide(n);
    remainder = n - quotient * divisor_;
    return quotient;
  }

 private:
  std::uint32_t divisor_ = 1;
  std::uint32_t multiplier_ = 1;
  std::uint32_t shift_ = 0;
};

}  // namespace burin
