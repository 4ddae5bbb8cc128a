#include <burin/graph/describe.h>
#include <burin/graph/warm_up.h>
#include <burin/runtime/check.h>
#include <burin/runtime/cuda/libraries.h>
#include <burin/runtime/plan_cache.h>

#include <algorithm>

namespace burin {
namespace detail {

const CachingPool* caching_pool_below(const MemoryResource& memory) {
  const MemoryResource* at = &memory;
  while (const auto* adaptor = dynamic_cast<const ResourceAdaptor*>(at)) at = &adaptor->upstream();
  return dynamic_cast<const CachingPool*>(at);
}

WarmUp::WarmUp(Context& ctx, const Forward& forward, std::span<const Tensor> inputs)
    : ctx_(ctx), forward_(forward), inputs_(inputs), pool_(caching_pool_below(*ctx.memory())) {}

WarmUp::~WarmUp() {
  for (auto& [generator, before] : generators_) generator.set(before);
}

void WarmUp::draws(const Generator& generator) {
  for (const auto& [known, before] : generators_)
    if (known == generator) return;
  generators_.emplace_back(generator, generator.next());
}

int WarmUp::run(int most) {
  const ObserverScope observing(ctx_.stream(), this);
  std::string before;
  for (int runs = 1;; ++runs) {
    run_once();
    if (fault_.empty()) return runs;
    const bool repeats = waited_ && fault_ == before;
    BURIN_CHECK(runs < most && !repeats, CaptureError,
                "capture: warm-up run {} still differs from what a graph can hold: {}", runs, fault_);
    before = fault_;
  }
}

void WarmUp::run_once() {
  fault_.clear();
  waited_ = false;
  open_.clear();
  before_.clear();
  outputs_.clear();
  const Counts start = count();
  const CaptureMemoryScope memory(ctx_);
  const std::vector<Tensor> results = forward_(ctx_, inputs_);
  compare(start, "the callable itself");
  peak_bytes_ = memory->peak_bytes();
  const std::vector<CaptureMemory::Request> requests = memory->requests();
  for (const Tensor& result : results) {
    BURIN_CHECK(result.defined(), CaptureError, "capture: output {} of the callable is undefined",
                outputs_.size());
    Output output{result.spec(), result.layout(), std::nullopt, result.buffer()->bytes()};
    const auto last = std::find_if(requests.rbegin(), requests.rend(), [&](const CaptureMemory::Request& r) {
      return r.data == result.buffer()->data();
    });
    if (last != requests.rend() && result.device() == ctx_.device())
      output.request = static_cast<std::size_t>(requests.rend() - last) - 1;
    outputs_.push_back(output);
  }
}

WarmUp::Counts WarmUp::count() const noexcept {
  return {ctx_.plans().made(), ctx_.library_handles(), pool_ ? pool_->reserved_bytes() : 0};
}

void WarmUp::op_begins(const OpCall& call) {
  before_.reserve(before_.size() + 1);
  open_.push_back(call.op);
  before_.push_back(count());
}

void WarmUp::op_ends(const OpCall& call, bool failed) noexcept {
  const Counts before = before_.back();
  before_.pop_back();
  open_.pop_back();
  if (!failed) compare(before, call.op);
}

void WarmUp::compare(const Counts& before, const char* op) noexcept try {
  const Counts now = count();
  if (now == before) return;
  if (now.handles > before.handles)
    blame(op, "it made a library handle");
  else if (now.plans > before.plans)
    blame(op, "it made a plan");
  else if (now.reserved_bytes > before.reserved_bytes)
    blame(op,
          fmt::format("it took {} new bytes from the driver", now.reserved_bytes - before.reserved_bytes));
} catch (...) {  // no memory for the text: the next run finds it again
}

void WarmUp::kernel_queued(const char* op, const void* kernel) {
  if (kernels_.insert(kernel).second)
    blame(op, "a kernel of it ran for the first time (cudaLaunchKernelExC)");
}

void WarmUp::host_waits(const char* call) {
  blame(open_.empty() ? "the callable itself" : open_.back(),
        fmt::format("it makes the host wait for the device ({})", call));
  waited_ = true;
}

void WarmUp::blame(const char* op, const std::string& what) {
  if (fault_.empty()) fault_ = describe_op(op, ctx_) + ": " + what;
}

}  // namespace detail

int warm_up(Context& ctx, const Forward& forward, std::span<const Tensor> inputs, int most_runs) {
  return detail::WarmUp(ctx, forward, inputs).run(most_runs);
}

GraphPool make_graph_pool(const Context& ctx) {
  const CachingPool* pool = detail::caching_pool_below(*ctx.memory());
  BURIN_CHECK(pool, CaptureError,
              "make_graph_pool: the context's memory neither is a CachingPool nor stands upon one");
  return pool->make_graph_pool();
}

}  // namespace burin
