#include <burin/runtime/check.h>
#include <burin/runtime/config.h>
#include <burin/runtime/context.h>
#include <burin/runtime/convert.h>
#include <burin/runtime/cpu/thread_pool.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/dispatch.h>
#include <burin/runtime/op_observer.h>
#include <burin/runtime/op_scope.h>
#include <burin/runtime/philox.h>
#include <burin/runtime/random.h>
#include <burin/runtime/stream_state.h>

#include <cmath>

namespace burin {
namespace {

constexpr std::int64_t kGrain = 1 << 12;  // blocks of four elements

template <class Distribution>
void generate(ThreadPool& threads, Tensor& out, Philox random, const Distribution& distribution,
              const char* op) {
  const std::int64_t count = out.count();
  const philox::Blocks blocks = philox::Blocks::cover(random.seed, random.offset, count);
  with_float_dtype(out.dtype(), op, [&]<class T>() {
    T* data = out.data<T>();
    threads.for_ranges(blocks.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        const philox::Floats floats = distribution(blocks.words(block));
        for (int lane = 0; lane < 4; ++lane) {
          const std::int64_t i = 4 * block + lane - blocks.skipped;
          if (i >= 0 && i < count) data[i] = convert<T>(floats.value[lane]);
        }
      }
    });
  });
}

Tensor empty_floating(Context& ctx, const Shape& shape, DType dtype, const char* op) {
  with_float_dtype(dtype, op, []<class T>() {});  // before anything is allocated
  return empty(ctx, shape, dtype);
}

void check_uniform(float low, float high) {
  BURIN_CHECK(std::isfinite(low) && low <= high && std::isfinite(high - low), ShapeError,
              "uniform: low ({}) must not exceed high ({}), and both and their difference must be finite",
              low, high);
}

void check_normal(float mean, float stddev) {
  BURIN_CHECK(std::isfinite(mean) && std::isfinite(stddev) && stddev >= 0, ShapeError,
              "normal: mean ({}) and stddev ({}) must be finite, and stddev not negative", mean, stddev);
}

/// After an eager draw of `out`.
void advance(Context& ctx, Generator& random, const Tensor& out) {
  if (OpObserver* observer = ctx.stream().state().observer()) observer->draws(random);
  random.take(static_cast<std::uint64_t>(out.count()));
}

/// A draw for a graph that is being recorded. launch(out, source) queues the kernel, which reads its place
/// from the source each time it runs.
template <class Launch>
Tensor record_draw(const char* op, Context& ctx, const Shape& shape, DType dtype, const Generator& random,
                   const Launch& launch) {
  Tensor out = empty_floating(ctx, shape, dtype, op);
  if (out.count() == 0) return out;
  const OpScope scope(ctx, op, {}, out);
  OpObserver::RandomSource source;
  if (OpObserver* observer = ctx.stream().state().observer())
    source = observer->draw(random, static_cast<std::uint64_t>(out.count()));
  BURIN_CHECK(
      source.state, CaptureError,
      "{}: the stream is being captured, but not by Burin, and the draw would give the same numbers in every "
      "run; draw from a Philox if that is meant",
      op);
  launch(out, source);
  return out;
}

}  // namespace

Tensor uniform(Context& ctx, const Shape& shape, Philox random, float low, float high, DType dtype) {
  check_uniform(low, high);
  Tensor out = empty_floating(ctx, shape, dtype, "uniform");
  const OpScope scope(ctx, "uniform", {}, out);
  if constexpr (kHasCuda) {
    if (ctx.device().is_cuda()) {
      cuda::uniform(ctx.stream(), dtype, out.raw(), out.count(), random, low, high);
      return out;
    }
  }
  generate(ctx.threads(), out, random, philox::Uniform{low, high - low}, "uniform");
  return out;
}

Tensor uniform(Context& ctx, const Shape& shape, Generator& random, float low, float high, DType dtype) {
  if constexpr (kHasCuda) {
    if (detail::capture_of(ctx.stream()) != 0) {
      check_uniform(low, high);
      return record_draw("uniform", ctx, shape, dtype, random, [&](Tensor& out, const auto& source) {
        cuda::uniform(ctx.stream(), dtype, out.raw(), out.count(), source.state, source.drawn, low, high);
      });
    }
  }
  Tensor out = uniform(ctx, shape, random.next(), low, high, dtype);
  advance(ctx, random, out);
  return out;
}

Tensor normal(Context& ctx, const Shape& shape, Philox random, float mean, float stddev, DType dtype) {
  check_normal(mean, stddev);
  Tensor out = empty_floating(ctx, shape, dtype, "normal");
  const OpScope scope(ctx, "normal", {}, out);
  if constexpr (kHasCuda) {
    if (ctx.device().is_cuda()) {
      cuda::normal(ctx.stream(), dtype, out.raw(), out.count(), random, mean, stddev);
      return out;
    }
  }
  generate(ctx.threads(), out, random, philox::Normal{mean, stddev}, "normal");
  return out;
}

Tensor normal(Context& ctx, const Shape& shape, Generator& random, float mean, float stddev, DType dtype) {
  if constexpr (kHasCuda) {
    if (detail::capture_of(ctx.stream()) != 0) {
      check_normal(mean, stddev);
      return record_draw("normal", ctx, shape, dtype, random, [&](Tensor& out, const auto& source) {
        cuda::normal(ctx.stream(), dtype, out.raw(), out.count(), source.state, source.drawn, mean, stddev);
      });
    }
  }
  Tensor out = normal(ctx, shape, random.next(), mean, stddev, dtype);
  advance(ctx, random, out);
  return out;
}

}  // namespace burin
