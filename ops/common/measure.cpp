#include <burin/ops/common/measure.h>
#include <burin/runtime/event.h>

namespace burin::ops {

double best_ms(Context& ctx, const std::function<void()>& launch) {
  launch();  // loads the kernels
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    Event begin(ctx.device());
    Event end(ctx.device());
    begin.record(ctx.stream());
    launch();
    end.record(ctx.stream());
    const double ms = begin.elapsed_ms(end);
    if (i == 0 || ms < best) best = ms;
  }
  return best;
}

}  // namespace burin::ops
