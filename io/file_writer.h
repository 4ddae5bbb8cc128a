#pragma once
// Private.

#include <burin/io/file_descriptor.h>

#include <cstddef>
#include <string>

namespace burin::io {

/// Writes a file so that its path holds either what was there before or the whole new content: into a
/// temporary file beside it, which commit() renames. Without commit() the temporary is removed. Every failure
/// is a FileError.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, std::size_t bytes);
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  FileDescriptor file_;
  bool committed_ = false;
};

}  // namespace burin::io
