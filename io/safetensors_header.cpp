#include <burin/io/safetensors_header.h>
#include <burin/runtime/check.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

namespace burin::io::safetensors {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's
constexpr std::size_t kMaxAxes = 64;
constexpr std::string_view kMetadata = "__metadata__";

/// Accepts exactly the format's JSON as it streams by, so that hostile input builds nothing that the format
/// has no place for:
/// {"__metadata__": {string: string}, name: {"dtype": string, "shape": [n...], "data_offsets": [n, n]}, ...}
class Reader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Reader(Header& header, const std::string& path) : header_(header), path_(path) {}

  bool start_object(std::size_t) override {
    if (at_ == At::start) {
      at_ = At::root;
    } else if (at_ == At::root) {
      at_ = key_ == kMetadata ? At::metadata : At::tensor;
      if (at_ == At::tensor) header_.entries.push_back({.name = key_, .type = {}, .shape = {}});
      fields_.clear();
    } else {
      fail("holds an object where the format has none");
    }
    return true;
  }

  bool end_object() override {
    if (at_ == At::root) {
      at_ = At::end;
    } else {
      if (at_ == At::tensor && fields_.size() != 3) fail("lacks one of dtype, shape, data_offsets");
      at_ = At::root;
    }
    return true;
  }

  bool key(std::string& text) override {
    if (at_ == At::root) {
      key_ = text;
      if (!names_.insert(text).second) fail("is there twice");
      return true;
    }
    if (at_ == At::tensor && text != "dtype" && text != "shape" && text != "data_offsets")
      fail(fmt::format("has the unknown field '{}'", text));
    if (!fields_.insert(text).second) fail(fmt::format("has the field '{}' twice", text));
    field_ = text;
    return true;
  }

  bool string(std::string& text) override {
    if (at_ == At::metadata) {
      header_.metadata.emplace(field_, text);
    } else if (at_ == At::tensor && field_ == "dtype") {
      const auto type = std::ranges::find(kTypes, text, &Type::name);
      if (type == kTypes.end()) fail(fmt::format("has the unknown dtype '{}'", text));
      header_.entries.back().type = &*type;
    } else {
      fail("holds a string where the format has none");
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (at_ != At::tensor || field_ == "dtype") fail("holds an array where the format has none");
    at_ = field_ == "shape" ? At::shape : At::offsets;
    offsets_ = 0;
    return true;
  }

  bool end_array() override {
    if (at_ == At::offsets && offsets_ != 2) fail("has data_offsets that are not two numbers");
    at_ = At::tensor;
    return true;
  }

  bool number_unsigned(std::uint64_t value) override {
    if (at_ == At::shape) {
      std::vector<std::int64_t>& shape = header_.entries.back().shape;
      if (shape.size() == kMaxAxes) fail(fmt::format("has more than {} axes", kMaxAxes));
      if (value > std::numeric_limits<std::int64_t>::max()) fail("has a shape past 63 bits");
      shape.push_back(static_cast<std::int64_t>(value));
    } else if (at_ == At::offsets && offsets_ < 2) {
      Entry& entry = header_.entries.back();
      (offsets_++ == 0 ? entry.begin : entry.end) = value;
    } else {
      fail("holds a number where the format has none");
    }
    return true;
  }

  bool null() override { fail("holds a null"); }
  bool boolean(bool) override { fail("holds a boolean"); }
  bool number_integer(std::int64_t) override { fail("holds a negative number"); }
  bool number_float(double, const std::string&) override { fail("holds a number that is no 64-bit integer"); }
  bool binary(nlohmann::json::binary_t&) override { fail("holds binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& e) override {
    throw FileError(path_, 8 + static_cast<std::int64_t>(position), "header", e.what());
  }

 private:
  enum class At { start, root, metadata, tensor, shape, offsets, end };

  [[noreturn]] void fail(const std::string& problem) const {
    throw FileError(path_, -1, key_.empty() ? "header" : key_, problem);
  }

  Header& header_;
  const std::string& path_;
  At at_ = At::start;
  std::string key_;    // of the root object
  std::string field_;  // of the object in it
  std::set<std::string> names_;
  std::set<std::string> fields_;
  int offsets_ = 0;
};

/// The bytes that the dtype and shape of an entry ask for.
std::uint64_t wanted_bytes(const Entry& entry, const std::string& path) {
  std::int64_t product = 1;  // of the non-zero extents: a zero must not hide an overflow
  bool empty = false;
  std::int64_t bits = 0;
  for (const std::int64_t extent : entry.shape) {
    if (extent == 0)
      empty = true;
    else if (__builtin_mul_overflow(product, extent, &product))
      throw FileError(path, -1, entry.name, "has a shape whose elements do not fit 63 bits");
  }
  if (__builtin_mul_overflow(empty ? 0 : product, std::int64_t{entry.type->bits}, &bits))
    throw FileError(path, -1, entry.name, "has a shape whose bits do not fit 63 bits");
  if (bits % 8 != 0) throw FileError(path, -1, entry.name, "does not end at a byte");
  return static_cast<std::uint64_t>(bits) / 8;
}

/// The tensors, sorted by place, must fill the data exactly.
void check_layout(const Header& header, std::uint64_t data_bytes, const std::string& path) {
  std::uint64_t at = 0;
  for (const Entry& entry : header.entries) {
    if (entry.begin != at || entry.end < entry.begin)
      throw FileError(
          path, -1, entry.name,
          fmt::format("has data_offsets [{}, {}] and must begin at {}", entry.begin, entry.end, at));
    const std::uint64_t wanted = wanted_bytes(entry, path);
    if (entry.end - entry.begin != wanted)
      throw FileError(path, -1, entry.name,
                      fmt::format("has {} bytes of data, but {} [{}] takes {}", entry.end - entry.begin,
                                  entry.type->name, fmt::join(entry.shape, ", "), wanted));
    at = entry.end;
  }
  if (at != data_bytes)
    throw FileError(path, -1, "data", fmt::format("holds {} bytes, but the tensors take {}", data_bytes, at));
}

}  // namespace

Header parse_header(std::span<const std::byte> file, const std::string& path) {
  std::uint64_t length = 0;
  if (file.size() < sizeof length)
    throw FileError(path, 0, "header length", fmt::format("needs 8 bytes, the file has {}", file.size()));
  for (int i = 7; i >= 0; --i)
    length = length << 8 | std::to_integer<std::uint64_t>(file[static_cast<std::size_t>(i)]);
  if (length > kMaxHeaderBytes)
    throw FileError(path, 0, "header length", fmt::format("{} is above {}", length, kMaxHeaderBytes));
  if (length > file.size() - sizeof length)
    throw FileError(path, 0, "header length",
                    fmt::format("{} passes the end of a file of {} bytes", length, file.size()));

  const std::string_view text(reinterpret_cast<const char*>(file.data()) + sizeof length, length);
  if (!text.starts_with('{')) throw FileError(path, 8, "header", "does not begin with '{'");
  Header header;
  header.data_offset = sizeof length + length;
  Reader reader(header, path);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  std::ranges::sort(header.entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
  check_layout(header, file.size() - header.data_offset, path);
  return header;
}

std::string format_header(const std::vector<Entry>& entries,
                          const std::map<std::string, std::string>& metadata) {
  const auto quoted = [](const std::string& text) {
    try {
      return nlohmann::json(text).dump();
    } catch (const nlohmann::json::type_error&) {
      throw Error("save_safetensors: a name or metadata text is not UTF-8");
    }
  };
  std::vector<std::string> items;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : metadata) pairs.push_back(quoted(key) + ":" + quoted(value));
    items.push_back(fmt::format("\"{}\":{{{}}}", kMetadata, fmt::join(pairs, ",")));
  }
  for (const Entry& entry : entries) {
    BURIN_CHECK(entry.name != kMetadata, Error, "save_safetensors: no tensor may be called {}", kMetadata);
    items.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                quoted(entry.name), entry.type->name, fmt::join(entry.shape, ","),
                                entry.begin, entry.end));
  }
  std::string text = fmt::format("{{{}}}", fmt::join(items, ","));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  BURIN_CHECK(text.size() <= kMaxHeaderBytes, Error, "save_safetensors: a header of {} bytes is above {}",
              text.size(), kMaxHeaderBytes);
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xFF);
  return length + text;
}

}  // namespace burin::io::safetensors
