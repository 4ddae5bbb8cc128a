#pragma once
// What tests of captures and graphs share, on a GPU or on the fake device.

#include <burin/graph/capture.h>
#include <burin/runtime/memory/caching_pool.h>
#include <support/cuda_fixture.h>
#include <support/graph_ops.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace burin::test {

/// OnCuda with the operators of graph_ops.h, and a pool of cuda:0 that the contexts made here share.
class OnGraphs : public OnCuda {
 protected:
  void SetUp() override {
    OnCuda::SetUp();
    if (fake()) register_graph_ops(*fake());
    pool_ = std::make_shared<CachingPool>(Device::cuda(0));
  }
  void TearDown() override {
    pool_.reset();
    OnCuda::TearDown();
  }

  /// `memory`: the pool, if absent.
  Context make_context(std::shared_ptr<MemoryResource> memory = nullptr) {
    ContextOptions options;
    options.memory = memory ? std::move(memory) : pool_;
    options.threads = 1;
    options.warn = [this](std::string_view message) { warnings_.emplace_back(message); };
    return Context(Device::cuda(0), std::move(options));
  }
  static Tensor vector_of(Context& ctx, const std::vector<float>& values) {
    return from_host(ctx, values, {static_cast<std::int64_t>(values.size())});
  }
  static Tensor filled(Context& ctx, float value, std::int64_t count = 4) {
    return vector_of(ctx, std::vector<float>(static_cast<std::size_t>(count), value));
  }
  /// The first element, of tensors all of whose elements must be equal.
  static float value_of(Context& ctx, const Tensor& x) {
    const std::vector<float> values = to_vector<float>(ctx, x);
    EXPECT_EQ(values, std::vector<float>(values.size(), values.at(0)));
    return values.at(0);
  }
  static bool is_capturing(const Context& ctx) { return cuda::capture_id(ctx.stream()) != 0; }
  /// Eager work on the context is possible, and right.
  static void expect_usable(Context& ctx) {
    EXPECT_FALSE(is_capturing(ctx));
    EXPECT_EQ(value_of(ctx, affine(ctx, filled(ctx, 1), 2, 1)), 3);
  }
  /// A graph of y = a * x + b, recorded by hand, into `graph`.
  static Tensor record_affine(CudaGraph& graph, Context& ctx, const Tensor& x, float a, float b,
                              const GraphPool& into = {}) {
    graph.capture_begin(ctx, into);
    Tensor y = affine(ctx, x, a, b);
    graph.capture_end();
    return y;
  }
  /// What the pool holds once everything that nobody uses was given back.
  std::size_t trimmed_bytes() {
    pool_->trim();
    return pool_->reserved_bytes();
  }
  const std::shared_ptr<CachingPool>& pool() const { return pool_; }
  std::vector<std::string>& warnings() { return warnings_; }  // of the contexts made here

 private:
  std::shared_ptr<CachingPool> pool_;
  std::vector<std::string> warnings_;
};

}  // namespace burin::test
