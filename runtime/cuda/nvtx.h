#pragma once
// Private: ranges that Nsight Systems and its like show. Without such a tool they cost nanoseconds.

namespace burin::cuda {

/// Ranges of one thread nest.
void begin_range(const char* name) noexcept;
void end_range() noexcept;

class RangeScope {
 public:
  explicit RangeScope(const char* name) noexcept { begin_range(name); }
  ~RangeScope() { end_range(); }
  RangeScope(const RangeScope&) = delete;
  RangeScope& operator=(const RangeScope&) = delete;
};

}  // namespace burin::cuda
