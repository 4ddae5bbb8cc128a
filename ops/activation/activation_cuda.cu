#include <burin/ops/activation/activation_impl.h>
#include <burin/ops/common/activation_apply.h>
#include <burin/ops/common/elementwise.cuh>
#include <burin/runtime/convert.h>
#include <burin/runtime/dispatch.h>

namespace burin::activation_impl {
namespace {

template <ActivationKind kKind>
struct ActivationOp {
  float alpha;
  float beta;

  template <class T, int kVector>
  __device__ void operator()(T (&y)[kVector], const T (&inputs)[1][kVector]) const {
    for (int v = 0; v < kVector; ++v)
      y[v] = convert<T>(activate<kKind>(convert<float>(inputs[0][v]), alpha, beta));
  }
};

}  // namespace

void cuda(Context& ctx, const Activation& a, Tensor& y, const Tensor& x, const StridedLoop<2>& loop) {
  with_float_dtype(y.dtype(), "activation", [&]<class T>() {
    const ops::ElementwiseData<T, 1> data{y.data<T>(), {x.data<T>()}};
    with_activation(a.kind, [&]<ActivationKind kKind>() {
      ops::launch_elementwise("activation", ctx, ActivationOp<kKind>{a.alpha, a.beta}, data, loop);
    });
  });
}

}  // namespace burin::activation_impl
