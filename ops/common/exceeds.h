#pragma once
// Private: the order of max_pool2d and argmax, on CPU and GPU.

#include <burin/runtime/float16.h>

namespace burin {

/// Whether a value replaces the best before it: NaN counts as the largest, and the first of equal ones stays.
template <class T>
BURIN_HOST_DEVICE inline bool exceeds(T value, T best) {
  return value > best || (value != value && best == best);
}

}  // namespace burin
