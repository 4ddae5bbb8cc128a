#include <burin/io/file_writer.h>
#include <burin/io/host_tensor.h>
#include <burin/io/mapped_file.h>
#include <burin/io/npy.h>
#include <burin/runtime/check.h>
#include <burin/runtime/copy.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

namespace burin::io {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct Descr {
  std::string_view code;  // without the byte order
  DType dtype;
};
constexpr std::array kDescrs = {Descr{"f2", DType::f16}, Descr{"f4", DType::f32},    Descr{"f8", DType::f64},
                                Descr{"i1", DType::i8},  Descr{"u1", DType::u8},     Descr{"i4", DType::i32},
                                Descr{"i8", DType::i64}, Descr{"b1", DType::boolean}};

struct Header {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<Shape> shape;
};

/// Reads the header's Python literal: a dictionary of exactly descr, fortran_order and shape.
class Parser {
 public:
  Parser(std::string_view text, const std::string& path, std::size_t offset)
      : text_(text), path_(path), offset_(offset) {}

  Header parse() {
    Header header;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !header.descr) {
        skip_space();
        BURIN_CHECK(!at('['), DTypeError, "{}: structured arrays are not supported", path_);
        header.descr = string();
      } else if (key == "fortran_order" && !header.fortran_order) {
        header.fortran_order = boolean();
      } else if (key == "shape" && !header.shape) {
        header.shape = shape();
      } else {
        fail("the key '" + key + "' is unknown or there twice");
      }
      if (!accept(',') && !at('}')) fail("',' or '}' expected");
    }
    skip_space();
    if (at_ != text_.size()) fail("text follows the dictionary");
    for (const auto& [there, name] : {std::pair(header.descr.has_value(), "descr"),
                                      std::pair(header.fortran_order.has_value(), "fortran_order"),
                                      std::pair(header.shape.has_value(), "shape")})
      if (!there) fail(std::string("the key '") + name + "' is missing");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw FileError(path_, static_cast<std::int64_t>(offset_ + at_), "header", problem);
  }
  bool at(char c) const { return at_ < text_.size() && text_[at_] == c; }
  void skip_space() {
    while (at(' ') || at('\n')) ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (!at(c)) return false;
    ++at_;
    skip_space();
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("'") + c + "' expected");
  }

  std::string string() {
    skip_space();
    if (!at('\'') && !at('"')) fail("a string expected");
    const std::size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) fail("a string without end");
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }

  bool boolean() {
    for (const auto& [word, value] : {std::pair(std::string_view("True"), true), {"False", false}}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    fail("True or False expected");
  }

  Shape shape() {
    IntList extents;
    expect('(');
    while (!accept(')')) {
      std::int64_t extent = 0;
      const char* const begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), extent);
      if (error != std::errc() || extent < 0) fail("an extent from 0 to 2^63 - 1 expected");
      if (extents.size() == kMaxRank) fail(fmt::format("more than {} axes are not supported", kMaxRank));
      at_ += static_cast<std::size_t>(end - begin);
      extents.push_back(extent);
      const bool comma = accept(',');
      if (!comma && (extents.size() == 1 || !at(')'))) fail("',' expected");  // (3) is no tuple
    }
    try {
      return Shape(extents);
    } catch (const ShapeError& e) {
      fail(e.what());
    }
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t offset_;
  std::size_t at_ = 0;
};

/// Where the header's text lies, by the version and length before it.
std::pair<std::size_t, std::size_t> header_range(std::span<const std::byte> file, const std::string& path) {
  const auto byte = [&](std::size_t i) {
    if (i >= file.size())
      throw FileError(path, static_cast<std::int64_t>(file.size()), "header", "the file ends");
    return std::to_integer<std::size_t>(file[i]);
  };
  for (std::size_t i = 0; i < kMagic.size(); ++i)
    if (byte(i) != static_cast<unsigned char>(kMagic[i]))
      throw FileError(path, 0, "magic", "is not \\x93NUMPY: not an .npy file");
  const std::size_t major = byte(6);
  if (major < 1 || major > 3 || byte(7) != 0)
    throw FileError(path, 6, "version", fmt::format("{}.{} is not supported", major, byte(7)));
  const std::size_t begin = major == 1 ? 10 : 12;
  std::size_t length = 0;
  for (std::size_t i = begin; i-- > 8;) length = length << 8 | byte(i);
  if (length > file.size() - begin)
    throw FileError(path, 8, "header length",
                    fmt::format("{} passes the end of a file of {} bytes", length, file.size()));
  return {begin, length};
}

Strides fortran_strides(const Shape& shape) {
  Strides strides = IntList::filled(shape.rank(), 1);
  for (int axis = 1; axis < shape.rank(); ++axis)
    strides[axis] = strides[axis - 1] * std::max<std::int64_t>(1, shape[axis - 1]);
  return strides;
}

DType dtype_of_descr(const std::string& descr, const std::string& path) {
  const bool order = !descr.empty() && std::string_view("<>|=").find(descr[0]) != std::string_view::npos;
  const auto found = std::ranges::find(kDescrs, order ? std::string_view(descr).substr(1) : "", &Descr::code);
  const bool known = found != kDescrs.end() && (descr[0] != '|' || item_bytes(found->dtype) == 1);
  BURIN_CHECK(known, DTypeError, "{}: descr '{}' is not supported", path, descr);
  return found->dtype;
}

}  // namespace

Tensor load_npy(const std::string& path) {
  auto file = std::make_shared<const MappedFile>(path);
  const std::span<std::byte> bytes = file->bytes();
  const auto [begin, length] = header_range(bytes, path);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + begin, length);
  const Header header = Parser(text, path, begin).parse();
  const DType dtype = dtype_of_descr(*header.descr, path);
  const std::size_t item = item_bytes(dtype);

  const std::size_t offset = begin + length;
  const std::span<std::byte> data = bytes.subspan(offset);
  std::size_t wanted = 0;
  if (__builtin_mul_overflow(static_cast<std::size_t>(header.shape->count()), item, &wanted) ||
      wanted != data.size())
    throw FileError(path, static_cast<std::int64_t>(offset), "data",
                    fmt::format("{} bytes are not the {} elements of {} {}", data.size(),
                                header.shape->count(), name(dtype), *header.shape));
  if (header.descr->front() == '>')  // the mapping is private: the file does not change
    for (std::size_t i = 0; i < data.size(); i += item) std::ranges::reverse(data.subspan(i, item));
  return view_host(path, static_cast<std::int64_t>(offset), data, std::move(file), *header.shape,
                   *header.fortran_order ? fortran_strides(*header.shape) : contiguous_strides(*header.shape),
                   dtype);
}

void save_npy(Context& ctx, const std::string& path, const Tensor& x) {
  BURIN_CHECK(x.defined(), Error, "save_npy: the tensor is undefined");
  const auto descr = std::ranges::find(kDescrs, x.dtype(), &Descr::dtype);
  BURIN_CHECK(descr != kDescrs.end(), DTypeError, "save_npy: {} is not supported", name(x.dtype()));

  std::string header =
      fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}",
                  item_bytes(x.dtype()) == 1 ? '|' : '<', descr->code,
                  fmt::join(x.shape().begin(), x.shape().end(), ", "), x.rank() == 1 ? "," : "");
  constexpr std::size_t kPrefix = 10;  // the data begins at a multiple of 64, after a line break
  header.resize((kPrefix + header.size() + 64) / 64 * 64 - kPrefix, ' ');
  header.back() = '\n';
  std::string prefix(kMagic);
  prefix += {'\x01', '\x00', static_cast<char>(header.size() & 0xFF), static_cast<char>(header.size() >> 8)};

  const Tensor host = contiguous(ctx, to(ctx, x, Device::cpu()));
  FileWriter file(path);
  file.write((prefix + header).data(), kPrefix + header.size());
  file.write(host.raw(), host.bytes());
  file.commit();
}

}  // namespace burin::io
