#pragma once
// The convolution that the tests of conv2d compare with: a plain loop in double.

#include <burin/ops/conv2d/conv2d.h>
#include <ops/activation_reference.h>
#include <support/test_support.h>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <vector>

namespace burin::test {

/// A call's shapes and values, row-major in [N, C, H, W] order; empty bias and residual are absent.
struct ConvCase {
  Shape x_shape, w_shape;
  Conv2dParams params;
  std::vector<double> x, w, bias, residual;
};

/// call(), and where a forced cuDNN has no engine for it, what the automatic choice makes of it, with a line
/// that says so.
template <class Call>
auto served(Context& ctx, Call&& call) {
  try {
    return call();
  } catch (const UnsupportedError& error) {
    if (ctx.preferred() != Backend::cudnn) throw;
    std::cout << "  left to the automatic choice: " << error.what() << "\n";
    ctx.prefer(Backend::automatic);
    auto result = call();
    ctx.prefer(Backend::cudnn);
    return result;
  }
}

struct ConvReference {
  std::vector<double> y;
  std::vector<double> magnitude;  // sum |x w| + |bias| + |residual|
  std::int64_t terms = 0;
};

inline ConvReference reference(const ConvCase& c) {
  const Conv2dParams& p = c.params;
  const Shape y_shape = p.output_shape(c.x_shape, c.w_shape);
  const std::int64_t channels = c.w_shape[1];
  const std::int64_t rows = c.w_shape[0] / p.groups;
  ConvReference out;
  out.terms = channels * c.w_shape[2] * c.w_shape[3];
  for (std::int64_t n = 0; n < y_shape[0]; ++n)
    for (std::int64_t k = 0; k < y_shape[1]; ++k)
      for (std::int64_t oh = 0; oh < y_shape[2]; ++oh)
        for (std::int64_t ow = 0; ow < y_shape[3]; ++ow) {
          double sum = 0;
          double magnitude = 0;
          const auto add = [&](double term) {
            sum += term;
            magnitude += std::abs(term);
          };
          for (std::int64_t i = 0; i < channels; ++i)
            for (std::int64_t r = 0; r < c.w_shape[2]; ++r)
              for (std::int64_t s = 0; s < c.w_shape[3]; ++s) {
                const std::int64_t ih = oh * p.stride[0] - p.padding.top + r * p.dilation[0];
                const std::int64_t iw = ow * p.stride[1] - p.padding.left + s * p.dilation[1];
                if (ih < 0 || ih >= c.x_shape[2] || iw < 0 || iw >= c.x_shape[3]) continue;
                const std::int64_t channel = k / rows * channels + i;
                const std::int64_t at_x =
                    ((n * c.x_shape[1] + channel) * c.x_shape[2] + ih) * c.x_shape[3] + iw;
                const std::int64_t at_w = ((k * channels + i) * c.w_shape[2] + r) * c.w_shape[3] + s;
                add(c.x[static_cast<std::size_t>(at_x)] * c.w[static_cast<std::size_t>(at_w)]);
              }
          if (!c.bias.empty()) add(c.bias[static_cast<std::size_t>(k)]);
          if (!c.residual.empty()) add(c.residual[out.y.size()]);
          out.y.push_back(activated(p.activation, sum));
          out.magnitude.push_back(magnitude);
        }
  return out;
}

}  // namespace burin::test
