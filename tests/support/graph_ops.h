#pragma once
// Small operators that run on a GPU, on the fake device and on the CPU alike, so that one test body serves
// for captures and executors on all three. f32, contiguous, of any count.

#include <burin/runtime/context.h>
#include <burin/runtime/tensor.h>

#include <cstdint>

namespace burin::test {

class FakeCuda;

/// y = a * x + b, rounded once for the product and once for the sum. Throws what operators throw.
Tensor affine(Context& ctx, const Tensor& x, float a, float b);
/// The same into a tensor of x's shape, which may be x.
void affine_into(Context& ctx, Tensor& y, const Tensor& x, float a, float b);

/// x + y, of the same shape.
Tensor sum2(Context& ctx, const Tensor& x, const Tensor& y);

/// A copy of x by work that is no kernel of Burin's: it stands for the call of a library, which hides the
/// addresses that it uses.
Tensor hidden(Context& ctx, const Tensor& x);

/// Tells the fake device what the kernels of these operators do.
void register_graph_ops(FakeCuda& fake);

namespace graph_ops_impl {  // graph_ops.cu
void affine(StreamView stream, float* y, const float* x, std::int64_t count, float a, float b);
void sum2(StreamView stream, float* z, const float* x, const float* y, std::int64_t count);
const void* affine_kernel_address();  // of (float* y, const float* x, std::int64_t count, float a, float b)
const void* sum2_kernel_address();    // of (float* z, const float* x, const float* y, std::int64_t count)
}  // namespace graph_ops_impl

}  // namespace burin::test
