#pragma once
// Private: how operators that autotune time their candidates.

#include <burin/runtime/context.h>

#include <functional>

namespace burin::ops {

/// Milliseconds of the device that a launch takes on the context's stream, without what the host needs to
/// queue it: the best of a few, after one to warm up.
double best_ms(Context& ctx, const std::function<void()>& launch);

}  // namespace burin::ops
