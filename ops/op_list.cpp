#include <burin/ops/op_list.h>
#include <burin/runtime/check.h>

#include <cstddef>

namespace burin {
namespace {

struct Name {
  std::string_view operator()(const Activation&) const { return "activation"; }
  std::string_view operator()(const ArgmaxParams&) const { return "argmax"; }
  std::string_view operator()(const AvgPool2dParams&) const { return "avg_pool2d"; }
  std::string_view operator()(const BatchNormParams&) const { return "batch_norm"; }
  std::string_view operator()(const BinaryParams& p) const { return name(p.kind); }
  std::string_view operator()(const CastParams&) const { return "cast"; }
  std::string_view operator()(const ConcatParams&) const { return "concat"; }
  std::string_view operator()(const Conv2dParams&) const { return "conv2d"; }
  std::string_view operator()(const GlobalAvgPool2dParams&) const { return "global_avg_pool2d"; }
  std::string_view operator()(const LinearParams&) const { return "linear"; }
  std::string_view operator()(const MatmulParams&) const { return "matmul"; }
  std::string_view operator()(const MaxPool2dParams&) const { return "max_pool2d"; }
  std::string_view operator()(const SoftmaxParams& p) const { return p.log ? "log_softmax" : "softmax"; }
};

/// The inputs of an operator that needs `required` of them and takes `optional` more.
class Inputs {
 public:
  Inputs(std::string_view op, std::span<const Tensor> given, std::size_t required, std::size_t optional = 0)
      : given_(given) {
    const std::size_t most = required + optional;
    BURIN_CHECK(given.size() >= required && given.size() <= most, ShapeError,
                "{}: the number of inputs ({}) must be {}", op, given.size(),
                optional == 0 ? fmt::to_string(required) : fmt::format("{} to {}", required, most));
  }
  const Tensor& operator[](std::size_t i) const { return i < given_.size() ? given_[i] : absent_; }

 private:
  std::span<const Tensor> given_;
  Tensor absent_;
};

struct Run {
  Context& ctx;
  std::span<const Tensor> inputs;

  Tensor operator()(const Activation& a) const {
    const Inputs in("activation", inputs, 1);
    return activation(ctx, in[0], a);
  }
  Tensor operator()(const ArgmaxParams& p) const {
    const Inputs in("argmax", inputs, 1);
    return argmax(ctx, in[0], p);
  }
  Tensor operator()(const AvgPool2dParams& p) const {
    const Inputs in("avg_pool2d", inputs, 1);
    return avg_pool2d(ctx, in[0], p);
  }
  Tensor operator()(const BatchNormParams& p) const {
    const Inputs in("batch_norm", inputs, 3, 2);
    return batch_norm(ctx, in[0], in[1], in[2], in[3], in[4], p);
  }
  Tensor operator()(const BinaryParams& p) const {
    const Inputs in(name(p.kind), inputs, 2);
    return binary(ctx, in[0], in[1], p);
  }
  Tensor operator()(const CastParams& p) const {
    const Inputs in("cast", inputs, 1);
    return cast(ctx, in[0], p);
  }
  Tensor operator()(const ConcatParams& p) const { return concat(ctx, inputs, p); }
  Tensor operator()(const Conv2dParams& p) const {  // x, w, bias, residual
    const Inputs in("conv2d", inputs, 2, 2);
    return conv2d(ctx, in[0], in[1], in[2], p, in[3]);
  }
  Tensor operator()(const GlobalAvgPool2dParams&) const {
    const Inputs in("global_avg_pool2d", inputs, 1);
    return global_avg_pool2d(ctx, in[0]);
  }
  Tensor operator()(const LinearParams& p) const {
    const Inputs in("linear", inputs, 2, 1);
    return linear(ctx, in[0], in[1], in[2], p);
  }
  Tensor operator()(const MatmulParams&) const {
    const Inputs in("matmul", inputs, 2);
    return matmul(ctx, in[0], in[1]);
  }
  Tensor operator()(const MaxPool2dParams& p) const {
    const Inputs in("max_pool2d", inputs, 1);
    return max_pool2d(ctx, in[0], p);
  }
  Tensor operator()(const SoftmaxParams& p) const {
    const Inputs in(p.log ? "log_softmax" : "softmax", inputs, 1);
    return softmax(ctx, in[0], p);
  }
};

}  // namespace

std::string_view op_name(const OpParams& params) { return std::visit(Name{}, params); }

Tensor run(Context& ctx, const OpParams& params, std::span<const Tensor> inputs) {
  return std::visit(Run{ctx, inputs}, params);
}

}  // namespace burin
