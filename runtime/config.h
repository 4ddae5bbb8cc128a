#pragma once
// Private: what this build contains, as constants for `if constexpr`.

namespace burin {

#if defined(BURIN_WITH_CUDA)
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

}  // namespace burin
