#pragma once

#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

#include <cstdint>

namespace burin {

/// A counter-based random sequence: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as
/// easy as 1, 2, 3", SC 2011) with the seed as its key. Element i of a tensor depends only on (seed, offset +
/// i), so the same numbers come out on every device, for every shape and however the work is split.
struct Philox {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  // elements to skip
};

/// low + (high - low) * u with u = k * 2^-24 in [0, 1), rounded to f32 after each operation, then to `dtype`
/// (f32, f16, bf16). Throws ShapeError unless low <= high and high - low is finite, DTypeError for other
/// types.
BURIN_API Tensor uniform(Context& ctx, const Shape& shape, Philox random, float low = 0.0f, float high = 1.0f,
                         DType dtype = DType::f32);
/// mean + stddev * z, with z by the Box-Muller transform; bit-equal on every device. Throws ShapeError unless
/// mean and stddev are finite and stddev >= 0, DTypeError as uniform.
BURIN_API Tensor normal(Context& ctx, const Shape& shape, Philox random, float mean = 0.0f,
                        float stddev = 1.0f, DType dtype = DType::f32);

}  // namespace burin
