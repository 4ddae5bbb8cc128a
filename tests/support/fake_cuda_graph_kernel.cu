// The kernel of the nodes that tests of graphs update.

namespace burin::test {
namespace {

__global__ void add_kernel(int* out, int value) { *out += value; }

}  // namespace

const void* add_kernel_address() { return reinterpret_cast<const void*>(add_kernel); }

}  // namespace burin::test
