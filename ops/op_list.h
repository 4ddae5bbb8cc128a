#pragma once

#include <burin/ops/activation/activation.h>
#include <burin/ops/argmax/argmax.h>
#include <burin/ops/avg_pool2d/avg_pool2d.h>
#include <burin/ops/batch_norm/batch_norm.h>
#include <burin/ops/binary/binary.h>
#include <burin/ops/cast/cast.h>
#include <burin/ops/concat/concat.h>
#include <burin/ops/conv2d/conv2d.h>
#include <burin/ops/linear/linear.h>
#include <burin/ops/matmul/matmul.h>
#include <burin/ops/max_pool2d/max_pool2d.h>
#include <burin/ops/softmax/softmax.h>
#include <burin/runtime/context.h>
#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

#include <span>
#include <string_view>
#include <variant>

namespace burin {

/// The list of operators: the parameters of one. It is visited without a default, so that a place that
/// forgets an operator does not compile.
using OpParams = std::variant<Activation, ArgmaxParams, AvgPool2dParams, BatchNormParams, BinaryParams,
                              CastParams, ConcatParams, Conv2dParams, GlobalAvgPool2dParams, LinearParams,
                              MatmulParams, MaxPool2dParams, SoftmaxParams>;

/// The name that the operator's errors begin with: "conv2d", "add", ...
BURIN_API std::string_view op_name(const OpParams& params);

/// Calls the operator. `inputs` are its tensors in the order of its own function; an optional one that is
/// absent is undefined or, at the end, left out. Throws ShapeError for a wrong number of them, and what the
/// operator throws.
BURIN_API Tensor run(Context& ctx, const OpParams& params, std::span<const Tensor> inputs);

}  // namespace burin
