#include <burin/ops/common/measure.h>
#include <burin/runtime/config.h>
#include <burin/runtime/cuda/cuda_calls.h>
#include <burin/runtime/event.h>

namespace burin::ops {

double best_ms(Context& ctx, const std::function<void()>& launch) {
  constexpr int kLaunches = 8;
  constexpr unsigned kDelayUs = 100;  // the host is ahead by then, so that its own time does not count
  launch();                           // loads the kernels
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    Event begin(ctx.device());
    Event end(ctx.device());
    if constexpr (kHasCuda)
      if (ctx.device().is_cuda()) cuda::delay(ctx.stream(), kDelayUs);
    begin.record(ctx.stream());
    for (int j = 0; j < kLaunches; ++j) launch();
    end.record(ctx.stream());
    const double ms = begin.elapsed_ms(end) / kLaunches;
    if (i == 0 || ms < best) best = ms;
  }
  return best;
}

}  // namespace burin::ops
