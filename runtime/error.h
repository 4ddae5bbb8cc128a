#pragma once

#include <burin/runtime/export.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace burin {

/// Root of everything Burin throws. A message names the operator, the rule and what was given:
/// "conv2d: channels of x (3) must equal channels of w (4) * groups (1)".
class BURIN_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Shapes, strides, axes or parameters that do not fit each other, or an output that aliases an input.
class BURIN_API ShapeError : public Error {
 public:
  using Error::Error;
};

/// An element type that an operation does not take.
class BURIN_API DTypeError : public Error {
 public:
  using Error::Error;
};

/// Tensors of different devices in one call, or a device that this machine does not have.
class BURIN_API DeviceError : public Error {
 public:
  using Error::Error;
};

/// A valid request that this build or the forced backend cannot serve.
class BURIN_API UnsupportedError : public Error {
 public:
  using Error::Error;
};

/// Memory that could not be had. Figures are bytes; `free` and `total` are the device's where it tells them.
class BURIN_API OutOfMemory : public Error {
 public:
  struct Figures {
    std::size_t requested = 0;
    std::size_t allocated = 0;      // live in this resource
    std::size_t reserved = 0;       // held from the device by this resource
    std::size_t largest_block = 0;  // largest free block of this resource
    std::size_t free = 0;
    std::size_t total = 0;
  };
  OutOfMemory(const std::string& what, Figures figures) : Error(what), figures_(figures) {}
  const Figures& figures() const noexcept { return figures_; }

 private:
  Figures figures_;
};

/// A call of the CUDA runtime that failed. `code()` is its cudaError_t as an integer.
class BURIN_API CudaError : public Error {
 public:
  CudaError(const std::string& what, int code) : Error(what), code_(code) {}
  int code() const noexcept { return code_; }

 private:
  int code_;
};

/// A library (cuDNN, cuBLASLt, ...) that is missing or whose call failed. `code()` is its status, -1 if
/// missing.
class BURIN_API LibraryError : public Error {
 public:
  LibraryError(const std::string& what, int code) : Error(what), code_(code) {}
  int code() const noexcept { return code_; }

 private:
  int code_;
};

/// Work that cannot be recorded into a CUDA graph, or a graph that cannot be replayed as asked.
class BURIN_API CaptureError : public Error {
 public:
  using Error::Error;
};

/// A file that is missing, truncated or malformed. `offset` is the byte at which reading failed (-1: none).
class BURIN_API FileError : public Error {
 public:
  FileError(const std::string& path, std::int64_t offset, const std::string& field,
            const std::string& problem);
  const std::string& path() const noexcept { return path_; }
  std::int64_t offset() const noexcept { return offset_; }
  const std::string& field() const noexcept { return field_; }

 private:
  std::string path_;
  std::int64_t offset_;
  std::string field_;
};

}  // namespace burin
