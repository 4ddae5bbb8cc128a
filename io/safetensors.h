#pragma once

#include <burin/runtime/context.h>
#include <burin/runtime/export.h>
#include <burin/runtime/tensor.h>

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace burin::io {

/// A safetensors file (https://github.com/huggingface/safetensors), checked in full when it is opened by the
/// rules of the reference implementation: the header's length is at most 100,000,000 and within the file,
/// names are unique, and the tensors fill the data without gap or overlap.
///
///     const io::Safetensors file = io::Safetensors::open("model.safetensors");
///     Tensor w = file.get("conv1.weight");
///
/// Cheap to copy; copies share the mapping.
class BURIN_API Safetensors {
 public:
  /// Maps the file. Throws FileError if it is missing or malformed.
  static Safetensors open(const std::string& path);
  /// The same over bytes in memory, which `owner` keeps alive; without one the caller does, for as long as
  /// any tensor. `path` is what errors call it.
  static Safetensors from_memory(std::span<std::byte> bytes, std::shared_ptr<const void> owner = {},
                                 const std::string& path = "<memory>");

  /// In the order of their data.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const;

  /// A host tensor that views the mapping, which lives as long as any of them (a copy where the data is not
  /// aligned for its dtype). To be read only: a write would be seen by the other tensors, though never by the
  /// file. Throws FileError if there is no such tensor, DTypeError for the types that Burin does not have
  /// (F8, I16, U16, U32, U64, complex, ...), ShapeError for more than 8 axes.
  Tensor get(const std::string& name) const;
  /// All of them, by name; throws as get() does.
  std::map<std::string, Tensor> all() const;

 private:
  struct Content;
  explicit Safetensors(std::shared_ptr<const Content> content) : content_(std::move(content)) {}
  std::shared_ptr<const Content> content_;
};

/// Writes the tensors (of any device, any strides) in the reference implementation's order: by dtype, the
/// widest first, then by name. The path holds either its old content or the whole new file, never a part.
/// Throws FileError; Error for an undefined tensor, the name "__metadata__" or text that is no UTF-8.
BURIN_API void save_safetensors(Context& ctx, const std::string& path,
                                const std::map<std::string, Tensor>& tensors,
                                const std::map<std::string, std::string>& metadata = {});

}  // namespace burin::io
