#pragma once
// Private: what the readers of tensors share.

#include <burin/runtime/tensor.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace burin::io {

/// The elements at `bytes`, which `owner` keeps alive, as a host tensor: a view of them where they are
/// aligned for the dtype, else a copy. `strides` are of a dense order, and `bytes` holds exactly the
/// elements. Throws FileError (of `path`, at `offset`) if a bool is neither 0 nor 1: such a value must not be
/// read as one.
Tensor view_host(const std::string& path, std::int64_t offset, std::span<std::byte> bytes,
                 std::shared_ptr<const void> owner, const Shape& shape, const Strides& strides, DType dtype);

}  // namespace burin::io
