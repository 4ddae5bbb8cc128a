#pragma once
// Private: how far two tensors on the host differ. Both are contiguous.

#include <burin/runtime/tensor.h>

#include <cstdint>
#include <string>

namespace burin::detail {

/// FNV-1a, 64 bits, of the tensor's bytes.
std::uint64_t checksum(const Tensor& x);

/// "differs from the eager one in 12 of 200704 elements, first at 77: 1.5 instead of 2.5", with `other` the
/// name of `expected`; empty if both are equal bit for bit.
std::string bit_difference(const Tensor& given, const Tensor& expected, const std::string& other);

/// The largest |given - expected|, as a share of the largest finite |expected|. Equal infinities and two NaNs
/// agree; else they are infinitely apart. Shapes are equal, dtypes may differ.
double relative_error(const Tensor& given, const Tensor& expected);

}  // namespace burin::detail
