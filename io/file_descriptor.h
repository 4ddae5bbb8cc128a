#pragma once
// Private.

#include <string>
#include <unistd.h>
#include <utility>

namespace burin::io {

/// Owns a POSIX file descriptor; negative: none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor) noexcept : descriptor_(descriptor) {}
  ~FileDescriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int get() const noexcept { return descriptor_; }
  /// Gives the descriptor away, to be closed by the caller.
  int release() noexcept { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

/// Throws a FileError that adds the meaning of an errno value to `what`.
[[noreturn]] void throw_system_error(const std::string& path, const std::string& what, int code);

}  // namespace burin::io
