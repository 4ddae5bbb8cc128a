#pragma once
// Every operator with parameters and operands, for tests that capture each of them.

#include <burin/ops/op_list.h>

#include <string>
#include <vector>

namespace burin::test {

struct Operand {
  Shape shape;
  bool varies = false;  // from call to call: a weight does not
};

struct OpCase {
  std::string name;
  OpParams params;
  std::vector<Operand> operands;  // those that vary come first
  std::vector<DType> dtypes;
  std::vector<Layout> layouts{Layout::contiguous};  // of operands of rank 4
  Backend library = Backend::automatic;             // that the operator has besides Burin's own kernels
};

inline std::vector<OpCase> replay_cases() {
  using enum DType;
  const std::vector<DType> halves_too = {f32, f16, bf16};
  const std::vector<DType> numbers = {f32, f16, bf16, f64, i8, u8, i32, i64};
  const std::vector<Layout> both = {Layout::contiguous, Layout::channels_last};
  const auto input = [](const Shape& shape) { return Operand{shape, true}; };
  const auto weight = [](const Shape& shape) { return Operand{shape, false}; };
  const Operand image = input({2, 8, 13, 11});
  const Padding2d ring = Padding2d::all(1);
  return {
      {"relu", Activation::relu(), {image}, halves_too, both},
      {"gelu", Activation::gelu(), {image}, halves_too, both},
      {"clip", Activation::clip(-0.5f, 0.25f), {input({1001})}, halves_too},
      {"argmax", ArgmaxParams{.axis = 1}, {input({4, 300, 3})}, numbers},
      {"avg_pool2d",
       AvgPool2dParams{.kernel = {3, 3}, .stride = {2, 2}, .padding = ring},
       {image},
       halves_too,
       both},
      {"batch_norm",
       BatchNormParams{.activation = Activation::relu()},
       {image, weight({8}), weight({8}), weight({8}), weight({8})},
       halves_too,
       both},
      {"add", BinaryParams{BinaryKind::add}, {image, input({2, 8, 13, 11})}, numbers, both},
      {"sub_channels", BinaryParams{BinaryKind::sub}, {image, weight({8, 1, 1})}, numbers, both},
      {"mul", BinaryParams{BinaryKind::mul}, {input({37, 5}), input({1, 5})}, numbers},
      {"div", BinaryParams{BinaryKind::div}, {input({37, 5}), input({37, 5})}, numbers},
      {"cast_to_f32", CastParams{f32}, {image}, numbers, both},
      {"cast_to_f16", CastParams{f16}, {image}, {f32, bf16, f64, i32}, both},
      {"cast_to_i64", CastParams{i64}, {image}, {i8, u8, i32}, both},
      {"concat",
       ConcatParams{1},
       {input({2, 8, 5, 3}), input({2, 3, 5, 3}), input({2, 16, 5, 3})},
       {f32, f16, bf16, i64, u8},
       both},
      {"conv2d_3x3",
       Conv2dParams{.stride = {2, 2}, .padding = ring, .activation = Activation::relu()},
       {image, weight({16, 8, 3, 3}), weight({16})},
       halves_too,
       both,
       Backend::cudnn},
      {"conv2d_wide",
       Conv2dParams{.padding = ring},
       {input({4, 64, 28, 28}), weight({128, 64, 3, 3})},
       halves_too,
       both,
       Backend::cudnn},
      {"conv2d_1x1",
       Conv2dParams{.activation = Activation::relu()},
       {input({2, 64, 14, 14}), weight({96, 64, 1, 1}), weight({96}), weight({2, 96, 14, 14})},
       halves_too,
       both,
       Backend::cudnn},
      {"conv2d_depthwise",
       Conv2dParams{.padding = ring, .groups = 8},
       {image, weight({8, 1, 3, 3}), weight({8})},
       halves_too,
       both,
       Backend::cudnn},
      {"global_avg_pool2d", GlobalAvgPool2dParams{}, {input({2, 40, 7, 7})}, halves_too, both},
      {"linear_small",
       LinearParams{Activation::relu()},
       {input({5, 96}), weight({48, 96}), weight({48})},
       halves_too,
       {Layout::contiguous},
       Backend::cublaslt},
      {"linear_wide",
       LinearParams{Activation::relu()},
       {input({128, 768}), weight({1024, 768}), weight({1024})},
       halves_too,
       {Layout::contiguous},
       Backend::cublaslt},
      {"matmul_batched",
       MatmulParams{},
       {input({3, 17, 24}), input({3, 24, 40})},
       halves_too,
       {Layout::contiguous},
       Backend::cublaslt},
      {"matmul_wide",
       MatmulParams{},
       {input({256, 512}), input({512, 256})},
       halves_too,
       {Layout::contiguous},
       Backend::cublaslt},
      {"max_pool2d",
       MaxPool2dParams{.kernel = {3, 3}, .stride = {2, 2}, .padding = ring},
       {image},
       halves_too,
       both,
       Backend::cudnn},
      {"softmax", SoftmaxParams{}, {input({6, 1003})}, {f32, f16, bf16, f64}},
      {"softmax_middle", SoftmaxParams{.axis = 1}, {input({4, 10, 7})}, {f32, f16, bf16, f64}},
      {"log_softmax", SoftmaxParams{.log = true}, {input({6, 33})}, {f32, f16, bf16, f64}},
  };
}

}  // namespace burin::test
