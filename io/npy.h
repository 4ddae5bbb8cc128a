#pragma once

#include <burin/runtime/context.h>
#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

#include <string>

namespace burin::io {

/// The array of a NumPy .npy file (format 1.0, 2.0 or 3.0; either byte order) as a host tensor: f16, f32,
/// f64, i8, u8, i32, i64 or bool. It views the mapped file where it can; to be read only. An array in
/// Fortran's order is a view with such strides. Throws FileError if the file is missing, truncated, longer
/// than the array or malformed, and DTypeError that names any other descr.
BURIN_API Tensor load_npy(const std::string& path);

/// Writes x (of any device, any strides) as format 1.0, little-endian, in C order. The path holds either its
/// old content or the whole new file, never a part. Throws FileError, and DTypeError for bf16, which NumPy
/// does not have.
BURIN_API void save_npy(Context& ctx, const std::string& path, const Tensor& x);

}  // namespace burin::io
