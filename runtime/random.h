#pragma once

#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

#include <cstdint>
#include <memory>

namespace burin {

/// A counter-based random sequence: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as
/// easy as 1, 2, 3", SC 2011) with the seed as its key. Element i of a tensor depends only on (seed, offset +
/// i), so the same numbers come out on every device, for every shape and however the work is split. Recorded
/// into a graph, it is a constant: every replay draws the same numbers.
struct Philox {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  // elements to skip
  bool operator==(const Philox&) const = default;
};

/// A place in a random sequence, from which draws take the numbers that come next. Copies are the same
/// generator. One thread at a time, like a Context.
class BURIN_API Generator {
 public:
  explicit Generator(std::uint64_t seed, std::uint64_t offset = 0)
      : next_(std::make_shared<Philox>(Philox{seed, offset})) {}

  /// Where the next draw begins.
  const Philox& next() const noexcept { return *next_; }
  void set(Philox next) noexcept { *next_ = next; }
  /// The beginning of a draw of `count` elements; the next one begins after them.
  Philox take(std::uint64_t count) noexcept {
    const Philox begin = *next_;
    next_->offset += count;
    return begin;
  }
  bool operator==(const Generator&) const = default;

 private:
  std::shared_ptr<Philox> next_;
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

/// The same from a generator, which advances by the number of elements. Recorded into a graph, each replay
/// draws, and advances, like the eager call: the numbers are fresh every time. Throws CaptureError while the
/// stream is captured by other means than Burin's (see graph/cuda_graph.h), where they would not be.
BURIN_API Tensor uniform(Context& ctx, const Shape& shape, Generator& random, float low = 0.0f,
                         float high = 1.0f, DType dtype = DType::f32);
BURIN_API Tensor normal(Context& ctx, const Shape& shape, Generator& random, float mean = 0.0f,
                        float stddev = 1.0f, DType dtype = DType::f32);

}  // namespace burin
