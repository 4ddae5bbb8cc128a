#pragma once

#include <burin/runtime/export.h>

#include <cstddef>
#include <span>
#include <string>

namespace burin::io {

/// A regular file mapped into memory. The mapping is private: what is written to it stays in this process and
/// never reaches the file. Whoever truncates a file while it is mapped makes its readers fail with SIGBUS;
/// files that others may change should be replaced by rename, as the writers here do.
class BURIN_API MappedFile {
 public:
  /// Throws FileError if the file is missing, unreadable, empty, or no regular file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<std::byte> bytes() const noexcept { return bytes_; }
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
  std::span<std::byte> bytes_;
};

}  // namespace burin::io
