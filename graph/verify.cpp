#include <burin/graph/describe.h>
#include <burin/graph/graph_state.h>
#include <burin/graph/tensor_difference.h>
#include <burin/graph/verify.h>
#include <burin/runtime/check.h>
#include <burin/runtime/config.h>
#include <burin/runtime/copy.h>
#include <burin/runtime/op_observer.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace burin {
namespace {

/// What a pass called and made.
struct Run {
  std::vector<GraphOp> ops;
  std::vector<Tensor> outputs;  // of each operator
  std::vector<Tensor> results;
};

/// Keeps the output of each operator that the pass itself calls, so that no memory is used twice.
class OutputKeeper final : public OpObserver {
 public:
  explicit OutputKeeper(Run& run) : run_(run) {}

  void op_begins(const OpCall& call) override {
    if (depth_ == 0) {
      run_.ops.push_back(detail::graph_op_of(call));
      run_.outputs.push_back(call.output);
    }
    ++depth_;
  }
  void op_ends(const OpCall&, bool) noexcept override { --depth_; }

 private:
  Run& run_;
  int depth_ = 0;  // of operators within operators
};

Run run_observed(Context& ctx, const Forward& forward, std::span<const Tensor> inputs) {
  Run run;
  OutputKeeper keeper(run);
  const ObserverScope observing(ctx.stream(), &keeper);
  run.results = forward(ctx, inputs);
  return run;
}

/// Dense copies on the context's device: a pass may write to its inputs.
std::vector<Tensor> copies_of(Context& ctx, std::span<const Tensor> inputs) {
  std::vector<Tensor> copies;
  for (const Tensor& x : inputs) {
    BURIN_CHECK(x.defined(), ShapeError, "verify: input {} is undefined", copies.size());
    copies.push_back(empty(ctx, x.shape(), x.dtype(), x.layout()));
    copy(ctx, copies.back(), x);
  }
  return copies;
}

Tensor read(Context& ctx, const Tensor& x) { return to(ctx, contiguous(ctx, x), Device::cpu()); }

std::string describe(const GraphOp& op) {
  return op.path.empty() ? fmt::format("{} {}", op.name, op.output.shape)
                         : fmt::format("{} in '{}' {}", op.name, op.path, op.output.shape);
}

std::string describe_result(std::size_t i) { return fmt::format("result {} of the pass", i); }

bool is_overwritten(const std::vector<Tensor>& outputs, std::size_t i) {
  return std::any_of(outputs.begin() + static_cast<std::ptrdiff_t>(i) + 1, outputs.end(),
                     [&](const Tensor& later) { return later.defined() && may_overlap(outputs[i], later); });
}

double tolerance_for(DType dtype) {
  switch (dtype) {
    case DType::f32: return 1e-4;
    case DType::f16: return 2e-2;
    case DType::bf16: return 1e-1;
    case DType::f64: return 1e-10;
    default: return 0;
  }
}

/// Where the generators of a graph stood, so that each run can draw the same numbers.
class DrawsOf {
 public:
  explicit DrawsOf(const detail::Captured& captured) {
    for (const detail::RandomSlot& slot : captured.random)
      begins_.emplace_back(slot.generator, slot.generator.next());
  }
  void rewind() noexcept {
    for (auto& [generator, begin] : begins_) generator.set(begin);
  }

 private:
  std::vector<std::pair<Generator, Philox>> begins_;
};

class Verification {
 public:
  Verification(Context& ctx, Run eager) : ctx_(ctx), eager_(std::move(eager)) {
    for (std::size_t i = 0; i < eager_.ops.size(); ++i) {
      const Tensor& output = eager_.outputs[i];
      report_.ops.push_back(
          {.op = eager_.ops[i], .is_compared = output.defined() && !is_overwritten(eager_.outputs, i)});
    }
  }

  /// `second`, named "the replay", must equal `first`, named "the eager run". The second may end with as many
  /// copies as there are results, to where a graph has them.
  void compare_bits(const Run& second, const std::string& second_name, const std::string& first_name,
                    std::size_t most_copies) {
    const std::string other = first_name + "'s";
    const std::size_t count = second.outputs.size();
    for (std::size_t i = 0; i < report_.ops.size(); ++i) {
      VerifyReport::Op& op = report_.ops[i];
      if (i >= count) {
        op.is_compared = false;
        diverge(i, fmt::format("{}: {} does not have it", describe(op.op), second_name));
      } else if (op.is_compared) {
        const Tensor first = read(ctx_, eager_.outputs[i]);
        const Tensor again = read(ctx_, second.outputs[i]);
        op.eager_checksum = detail::checksum(first);
        op.replay_checksum = detail::checksum(again);
        if (const std::string difference = detail::bit_difference(again, first, other); !difference.empty())
          diverge(i, fmt::format("{}: {}'s output {}", describe(op.op), second_name, difference));
      }
    }
    if (count > report_.ops.size() + most_copies)
      diverge({},
              fmt::format("{} has {} operators, {} {}", second_name, count, first_name, report_.ops.size()));
    compare_results(second.results, second_name, first_name);
    agreement_ = fmt::format("{} equals {} bit for bit, operator by operator ({} compared)", second_name,
                             first_name, count_compared());
  }

  void compare_with_executor(const std::vector<Tensor>& results, const std::string& first_name) {
    compare_results(results, "the executor", first_name);
    agreement_ += "; so do the executor's results";
  }

  void compare_with_cpu(const Run& cpu, double tolerance) {
    const bool alike = std::equal(cpu.ops.begin(), cpu.ops.end(), eager_.ops.begin(), eager_.ops.end(),
                                  [](const GraphOp& a, const GraphOp& b) {
                                    return a.name == b.name && a.output.shape == b.output.shape;
                                  });
    double worst = 0;
    for (std::size_t i = 0; alike && i < report_.ops.size(); ++i) {
      VerifyReport::Op& op = report_.ops[i];
      if (!op.is_compared || is_overwritten(cpu.outputs, i)) continue;
      op.cpu_error = error_of(eager_.outputs[i], cpu.outputs[i], tolerance, i, describe(op.op));
      worst = std::max(worst, op.cpu_error);
    }
    if (cpu.results.size() != eager_.results.size())
      diverge({}, fmt::format("the CPU gave {} results, the device {}", cpu.results.size(),
                              eager_.results.size()));
    for (std::size_t i = 0; i < std::min(cpu.results.size(), eager_.results.size()); ++i)
      worst = std::max(worst, error_of(eager_.results[i], cpu.results[i], tolerance, {}, describe_result(i)));
    agreement_ += fmt::format("; the largest error against the CPU is {:.2g}", worst);
    if (!alike)
      note_ =
          fmt::format("; only results were compared with the CPU, which ran other operators ({} against {})",
                      cpu.ops.size(), eager_.ops.size());
  }

  VerifyReport take_report() {
    if (report_.agrees) report_.message = agreement_;
    report_.message += note_;
    return std::move(report_);
  }

 private:
  /// Of several divergences the first counts.
  void diverge(std::optional<std::size_t> op, std::string message) {
    if (!std::exchange(report_.agrees, false)) return;
    if (op) report_.first_divergence = static_cast<int>(*op);
    report_.message = std::move(message);
  }

  void compare_results(const std::vector<Tensor>& results, const std::string& second_name,
                       const std::string& first_name) {
    if (results.size() != eager_.results.size())
      return diverge({}, fmt::format("{} has {} results, {} {}", second_name, results.size(), first_name,
                                     eager_.results.size()));
    for (std::size_t i = 0; i < results.size(); ++i) {
      const std::string difference =
          detail::bit_difference(read(ctx_, results[i]), read(ctx_, eager_.results[i]), first_name + "'s");
      if (!difference.empty())
        diverge({}, fmt::format("{}: {}'s {}", describe_result(i), second_name, difference));
    }
  }

  double error_of(const Tensor& device, const Tensor& cpu, double tolerance, std::optional<std::size_t> op,
                  const std::string& what) {
    if (device.shape() != cpu.shape()) {
      diverge(op, fmt::format("{}: has shape {}, and {} on the CPU", what, device.shape(), cpu.shape()));
      return -1;
    }
    Context host(Device::cpu(), {.threads = 1});
    const double error = detail::relative_error(read(ctx_, device), contiguous(host, cpu));
    const double allowed = tolerance > 0 ? tolerance : tolerance_for(device.dtype());
    if (!(error <= allowed))
      diverge(op,
              fmt::format("{}: differs from the CPU's by {:.2g} of the largest magnitude; {:.2g} is allowed",
                          what, error, allowed));
    return error;
  }

  std::size_t count_compared() const {
    return static_cast<std::size_t>(
        std::count_if(report_.ops.begin(), report_.ops.end(), [](const auto& op) { return op.is_compared; }));
  }

  Context& ctx_;
  Run eager_;
  VerifyReport report_;
  std::string agreement_;
  std::string note_;
};

/// `executor`: may be null.
VerifyReport verify_pass(Context& ctx, const Forward& forward, std::span<const Tensor> inputs,
                         const VerifyOptions& options, GraphExecutor* executor) {
  const bool is_cuda = ctx.device().is_cuda();
  const std::string first_name = is_cuda ? "the eager run" : "the first run";
  std::optional<Verification> verification;
  std::optional<DrawsOf> draws;
  if (is_cuda) {
    CudaGraph graph = detail::capture_with(ctx, forward, copies_of(ctx, inputs), {},
                                           {.after_op = {}, .keep_outputs = true});
    const detail::Captured& captured = detail::captured_in(graph, "verify");
    draws.emplace(captured);
    verification.emplace(ctx, run_observed(ctx, forward, copies_of(ctx, inputs)));
    draws->rewind();
    graph.replay(ctx.stream(), copies_of(ctx, inputs));
    verification->compare_bits({{}, captured.kept, graph.outputs()}, "the replay", first_name,
                               graph.outputs().size());
  } else {
    verification.emplace(ctx, run_observed(ctx, forward, copies_of(ctx, inputs)));
    verification->compare_bits(run_observed(ctx, forward, copies_of(ctx, inputs)), "the second run",
                               first_name, 0);
  }
  if (executor) {
    if (draws) draws->rewind();
    verification->compare_with_executor(executor->run(copies_of(ctx, inputs)), first_name);
  }
  if (options.reference) {
    if (draws) draws->rewind();
    Context cpu;
    std::vector<Tensor> on_host;
    for (const Tensor& x : inputs) on_host.push_back(clone(cpu, read(ctx, x)));
    verification->compare_with_cpu(run_observed(cpu, options.reference, on_host), options.tolerance);
  }
  return verification->take_report();
}

}  // namespace

VerifyReport verify(Context& ctx, const Forward& forward, std::span<const Tensor> inputs,
                    const VerifyOptions& options) {
  return verify_pass(ctx, forward, inputs, options, nullptr);
}

VerifyReport verify(GraphExecutor& executor, std::span<const Tensor> inputs, const VerifyOptions& options) {
  const std::vector<std::int64_t>& buckets = executor.options().buckets;
  const auto is_of_batch = [&](std::int64_t bucket) {
    return !inputs.empty() && inputs[0].rank() > 0 && inputs[0].extent(0) == bucket;
  };
  const bool is_run_as_it_is = buckets.empty() || std::any_of(buckets.begin(), buckets.end(), is_of_batch);
  return verify_pass(executor.context(), executor.forward(), inputs, options,
                     is_run_as_it_is ? &executor : nullptr);
}

}  // namespace burin
