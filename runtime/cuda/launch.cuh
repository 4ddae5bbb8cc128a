#pragma once
// Private: the one way to launch a kernel.

#include <burin/runtime/cuda/launch.h>

#include <tuple>
#include <type_traits>

namespace burin::cuda {

namespace detail {
/// Integers may not lose bits on their way to a kernel: the caller narrows, and says so.
template <class Parameter, class Argument>
inline constexpr bool keeps_bits =
    !std::is_integral_v<Parameter> || !std::is_integral_v<Argument> || sizeof(Argument) <= sizeof(Parameter);
}  // namespace detail

/// launch("relu", relu_kernel<float>, {.grid = ..., .block = ...}, ctx.stream(), y, x, count): queues the
/// kernel with the arguments converted to its parameter types. See launch_untyped for limits and errors.
template <class... Parameters, class... Arguments>
void launch(const char* op, void (*kernel)(Parameters...), const LaunchShape& shape, StreamView stream,
            const Arguments&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments),
                "as many arguments as the kernel has parameters");
  static_assert((detail::keeps_bits<Parameters, Arguments> && ...),
                "an integer is wider than the kernel's parameter");
  std::tuple<Parameters...> values(static_cast<Parameters>(arguments)...);
  std::apply(
      [&](auto&... value) {
        void* addresses[sizeof...(Parameters) + 1] = {static_cast<void*>(&value)...};
        launch_untyped(op, reinterpret_cast<const void*>(kernel), shape, stream, addresses);
      },
      values);
}

#if defined(__CUDACC__)
/// Of a kernel that starts early: goes on once all that was queued before the kernel has finished and can be
/// seen. Every thread calls it, before it reads or writes what others may, and before it returns.
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Waits for what was queued before, then calls body(i) for this thread's share of [0, count), in a
/// one-dimensional grid of any size. The counter is 64-bit, so the last step of a count near 2^31 does not
/// wrap.
template <class Body>
__device__ void for_each_index(std::int64_t count, Body&& body) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  wait_for_previous();
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step)
    body(i);
}
#endif

}  // namespace burin::cuda
