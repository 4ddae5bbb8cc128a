#include <burin/io/file_descriptor.h>
#include <burin/io/mapped_file.h>
#include <burin/runtime/error.h>

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>

namespace burin::io {

void throw_system_error(const std::string& path, const std::string& what, int code) {
  throw FileError(path, -1, "", what + ": " + std::generic_category().message(code));
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw_system_error(path, "cannot open the file", errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_system_error(path, "cannot read the file's size", errno);
  if (S_ISDIR(status.st_mode)) throw FileError(path, -1, "", "is a directory");
  if (!S_ISREG(status.st_mode)) throw FileError(path, -1, "", "is not a regular file");
  if (status.st_size == 0) throw FileError(path, -1, "", "the file is empty");
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
  if (data == MAP_FAILED) throw_system_error(path, "cannot map the file", errno);
  bytes_ = {static_cast<std::byte*>(data), size};
}

MappedFile::~MappedFile() { ::munmap(bytes_.data(), bytes_.size()); }

}  // namespace burin::io
