#pragma once
// Private: the backends of argmax. x and y are contiguous and not empty.

#include <burin/ops/argmax/argmax.h>
#include <burin/ops/common/exceeds.h>
#include <burin/ops/common/lines.h>
#include <burin/runtime/float16.h>

namespace burin::argmax_impl {

void cpu(Context& ctx, const Lines& lines, const Tensor& x, Tensor& y);
void cuda(Context& ctx, const Lines& lines, const Tensor& x, Tensor& y);

/// A type that compares as T does.
template <class T>
struct Comparable {
  using Type = T;
};
template <>
struct Comparable<f16> {
  using Type = float;
};
template <>
struct Comparable<bf16> {
  using Type = float;
};
template <class T>
using comparable_t = typename Comparable<T>::Type;

}  // namespace burin::argmax_impl
