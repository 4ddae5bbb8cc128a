#include <burin/nn/models/sample_cnn.h>

namespace burin::nn {

Tensor SampleCnn::forward(Context& ctx, const Tensor& x) const {
  const MaxPool2dParams half{.kernel = {2, 2}};
  Tensor h = conv1(ctx, x);           // [N, 32, 26, 26]
  h = max_pool2d(ctx, h, half);       // [N, 32, 13, 13]
  h = conv2(ctx, h);                  // [N, 64, 11, 11]
  h = max_pool2d(ctx, h, half);       // [N, 64, 5, 5]
  return fc(ctx, Flatten()(ctx, h));  // [N, 1600] to [N, 10]
}

}  // namespace burin::nn
