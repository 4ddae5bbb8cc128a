// When each operator of a model runs within its graph, on a GPU:
//   timeline MODEL PRECISION BATCH [BACKEND] [trace.json]     sample_cnn | resnet18 | resnet50, f32 | tf32 |
//   f16
// prints a line for each operator, and writes a trace for chrome://tracing or Perfetto if asked to. BACKEND:
// auto (measured, the default), heuristic, or cuda for hand-written kernels only.

#include <burin/graph/timeline.h>
#include <burin/runtime/error.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <graph/models.h>
#include <iterator>
#include <string>

#include <fmt/format.h>

namespace {

using namespace burin;

template <class Entries>
const auto* find(const Entries& entries, const std::string& name) {
  const auto found = std::find_if(std::begin(entries), std::end(entries),
                                  [&](const auto& entry) { return entry.name == name; });
  if (found == std::end(entries)) throw Error("timeline: '" + name + "' is not known");
  return &*found;
}

void print(const GraphTimeline& timeline) {
  for (const GraphTimeline::Span& span : timeline.spans)
    fmt::print("{:9.2f} us {:8.2f} us  {:<14} {:<18} [{}]\n", span.begin_us, span.duration_us, span.op.name,
               span.op.path, span.kernels);
  fmt::print("sum {:.2f} us, the graph without events {:.2f} us, an event {:.2f} us\n", timeline.sum_us(),
             timeline.whole_us, timeline.event_us);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) throw Error("usage: timeline MODEL PRECISION BATCH [BACKEND] [trace.json]");
  const bench::ModelCase& model_case = *find(bench::kModels, argv[1]);
  const bench::Precision& precision = *find(bench::kPrecisions, argv[2]);
  const std::string backend = argc > 4 ? argv[4] : "auto";
  Context ctx(Device::cuda(), bench::options_for(precision));
  ctx.set_autotune(backend == "auto");
  if (backend == "cuda") ctx.prefer(Backend::cuda);
  const auto model = bench::converted(ctx, model_case.make(ctx), precision);
  const Tensor x = bench::make_input(ctx, model_case, precision, std::atoll(argv[3]));
  const Forward forward = [&](Context& c, std::span<const Tensor> in) {
    return std::vector{(*model)(c, in[0])};
  };
  const GraphTimeline measured = timeline(ctx, forward, std::span(&x, 1), 100);
  print(measured);
  if (argc > 5) std::ofstream(argv[5]) << measured.to_chrome_trace();
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
