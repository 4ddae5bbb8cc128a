#include <burin/ops/binary/binary_impl.h>
#include <burin/ops/common/elementwise.cuh>

namespace burin::binary_impl {
namespace {

/// The kind is a branch that a whole grid takes alike: memory is what these kernels wait for.
struct BinaryOp {
  BinaryKind kind;

  template <class T, int kVector>
  __device__ void operator()(T (&y)[kVector], const T (&inputs)[2][kVector]) const {
    switch (kind) {
      case BinaryKind::add: return each<BinaryKind::add>(y, inputs);
      case BinaryKind::sub: return each<BinaryKind::sub>(y, inputs);
      case BinaryKind::mul: return each<BinaryKind::mul>(y, inputs);
      case BinaryKind::div: return each<BinaryKind::div>(y, inputs);
    }
  }

  template <BinaryKind kKind, class T, int kVector>
  __device__ static void each(T (&y)[kVector], const T (&inputs)[2][kVector]) {
    for (int v = 0; v < kVector; ++v) y[v] = apply<kKind>(inputs[0][v], inputs[1][v]);
  }
};

}  // namespace

void cuda(Context& ctx, BinaryKind kind, Tensor& y, const Tensor& a, const Tensor& b,
          const StridedLoop<3>& loop) {
  with_numeric_dtype(y.dtype(), name(kind), [&]<class T>() {
    const ops::ElementwiseData<T, 2> data{y.data<T>(), {a.data<T>(), b.data<T>()}};
    ops::launch_elementwise(name(kind).data(), ctx, BinaryOp{kind}, data, loop);
  });
}

}  // namespace burin::binary_impl
