#pragma once

#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

#include <string>

namespace burin::io {

/// The array of bytes in an IDX file (MNIST's format), gzip-compressed or not, as a host tensor of u8; to be
/// read only. Throws FileError if the file is missing, truncated, longer than the array or malformed, and
/// DTypeError for arrays of other types.
BURIN_API Tensor load_idx(const std::string& path);

}  // namespace burin::io
