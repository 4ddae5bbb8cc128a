#include <burin/io/file_writer.h>
#include <burin/runtime/error.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <random>
#include <sys/stat.h>
#include <unistd.h>

namespace burin::io {
namespace {

/// A name in the same folder, so that renaming never crosses a file system. What is no regular file must not
/// be renamed over: it would put a file in the place of a device such as /dev/null.
std::string temporary_beside(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    throw FileError(path, -1, "", S_ISDIR(status.st_mode) ? "is a directory" : "is not a regular file");
  std::random_device random;
  return path + "." + std::to_string(random()) + ".tmp";
}

}  // namespace

FileWriter::FileWriter(const std::string& path)
    : path_(path),
      temporary_(temporary_beside(path)),
      file_(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (file_.get() < 0) throw_system_error(path_, "cannot create a file there", errno);
}

FileWriter::~FileWriter() {
  if (!committed_) ::unlink(temporary_.c_str());
}

void FileWriter::write(const void* data, std::size_t bytes) {
  constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // Linux writes less than 2^31 bytes a call
  const auto* from = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file_.get(), from, std::min(bytes, kMostAtOnce));
    if (written < 0) {
      if (errno == EINTR) continue;
      throw_system_error(path_, "cannot write the file", errno);
    }
    from += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void FileWriter::commit() {
  // Renamed before its bytes were safe, a file could be empty after a crash. Some file systems report a full
  // disk only here or at close.
  if (::fsync(file_.get()) != 0 && errno != EINVAL) throw_system_error(path_, "cannot write the file", errno);
  if (::close(file_.release()) != 0) throw_system_error(path_, "cannot write the file", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    throw_system_error(path_, "cannot put the file in place", errno);
  committed_ = true;
}

}  // namespace burin::io
