#pragma once
// Private: when a product is so small that launching it takes the host longer than running it takes the GPU.
// Then the backend that launches fastest wins, and that is the hand-written one. The bounds are measured:
// docs/benchmarks.md.

namespace burin::ops {

inline constexpr double kLaunchBoundConvFlops = 5e8;
inline constexpr double kLaunchBoundProductFlops = 1e8;

}  // namespace burin::ops
