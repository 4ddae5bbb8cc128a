#include <burin/runtime/check.h>
#include <burin/runtime/error.h>

namespace burin {
namespace {

std::string describe(const std::string& path, std::int64_t offset, const std::string& field,
                     const std::string& problem) {
  std::string text = path;
  if (offset >= 0) text += fmt::format(" at byte {}", offset);
  if (!field.empty()) text += fmt::format(", {}", field);
  return text + ": " + problem;
}

}  // namespace

FileError::FileError(const std::string& path, std::int64_t offset, const std::string& field,
                     const std::string& problem)
    : Error(describe(path, offset, field, problem)), path_(path), offset_(offset), field_(field) {}

}  // namespace burin
