#include <burin/io/file_writer.h>
#include <burin/io/host_tensor.h>
#include <burin/io/mapped_file.h>
#include <burin/io/safetensors.h>
#include <burin/io/safetensors_header.h>
#include <burin/runtime/check.h>
#include <burin/runtime/copy.h>

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace burin::io {

using safetensors::Entry;
using safetensors::kTypes;
using safetensors::Type;

struct Safetensors::Content {
  std::string path;
  std::span<std::byte> bytes;
  std::shared_ptr<const void> owner;
  safetensors::Header header;
  std::unordered_map<std::string, const Entry*> index;
};

Safetensors Safetensors::open(const std::string& path) {
  auto file = std::make_shared<const MappedFile>(path);
  const std::span<std::byte> bytes = file->bytes();
  return from_memory(bytes, std::move(file), path);
}

Safetensors Safetensors::from_memory(std::span<std::byte> bytes, std::shared_ptr<const void> owner,
                                     const std::string& path) {
  auto content = std::make_shared<Content>();
  content->path = path;
  content->bytes = bytes;
  content->owner = std::move(owner);
  content->header = safetensors::parse_header(bytes, path);
  for (const Entry& entry : content->header.entries) content->index.emplace(entry.name, &entry);
  return Safetensors(std::move(content));
}

std::vector<std::string> Safetensors::names() const {
  std::vector<std::string> names;
  for (const Entry& entry : content_->header.entries) names.push_back(entry.name);
  return names;
}

bool Safetensors::contains(const std::string& name) const { return content_->index.contains(name); }

const std::map<std::string, std::string>& Safetensors::metadata() const { return content_->header.metadata; }

Tensor Safetensors::get(const std::string& name) const {
  const auto found = content_->index.find(name);
  if (found == content_->index.end()) throw FileError(content_->path, -1, name, "there is no such tensor");
  const Entry& entry = *found->second;
  BURIN_CHECK(entry.type->dtype.has_value(), DTypeError, "{}, {}: dtype {} is not supported", content_->path,
              name, entry.type->name);
  BURIN_CHECK(entry.shape.size() <= kMaxRank, ShapeError, "{}, {}: {} axes are more than {}", content_->path,
              name, entry.shape.size(), kMaxRank);
  const Shape shape{std::span<const std::int64_t>(entry.shape)};
  const std::size_t offset = content_->header.data_offset + entry.begin;
  return view_host(content_->path, static_cast<std::int64_t>(offset),
                   content_->bytes.subspan(offset, entry.end - entry.begin), content_->owner, shape,
                   contiguous_strides(shape), *entry.type->dtype);
}

std::map<std::string, Tensor> Safetensors::all() const {
  std::map<std::string, Tensor> tensors;
  for (const Entry& entry : content_->header.entries) tensors.emplace(entry.name, get(entry.name));
  return tensors;
}

void save_safetensors(Context& ctx, const std::string& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::vector<Entry> entries;
  for (const auto& [name, tensor] : tensors) {
    BURIN_CHECK(tensor.defined(), Error, "save_safetensors: {} is undefined", name);
    const auto type = std::ranges::find(kTypes, std::optional(tensor.dtype()), &Type::dtype);
    entries.push_back({name, &*type, {tensor.shape().begin(), tensor.shape().end()}, 0, 0});
  }
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return std::tie(b.type, a.name) < std::tie(a.type, b.name);
  });
  std::uint64_t end = 0;
  for (Entry& entry : entries) {
    entry.begin = end;
    entry.end = end += tensors.at(entry.name).bytes();
  }

  const std::string header = safetensors::format_header(entries, metadata);
  FileWriter file(path);
  file.write(header.data(), header.size());
  for (const Entry& entry : entries) {
    const Tensor host = contiguous(ctx, to(ctx, tensors.at(entry.name), Device::cpu()));
    file.write(host.raw(), host.bytes());
  }
  file.commit();
}

}  // namespace burin::io
