#include <burin/io/host_tensor.h>
#include <burin/io/idx.h>
#include <burin/io/mapped_file.h>
#include <burin/runtime/allocate.h>
#include <burin/runtime/check.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <zlib.h>

namespace burin::io {
namespace {

/// The bytes of one gzip member, in order.
class GzipReader {
 public:
  GzipReader(std::span<const std::byte> compressed, const std::string& path)
      : rest_(compressed), path_(path) {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) fail("zlib could not start");
  }
  ~GzipReader() { inflateEnd(&stream_); }
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  void read(std::byte* to, std::size_t bytes) {
    if (inflate_into(to, bytes) != bytes) fail("the compressed data ends too soon");
  }
  /// Checks the checksum and that nothing follows.
  void finish() {
    std::byte extra{};
    if (!ended_ && inflate_into(&extra, 1) != 0) fail("more data than the dimensions say");
    if (!ended_) fail("the compressed data ends too soon");
    if (stream_.avail_in > 0 || !rest_.empty()) fail("bytes follow the compressed data");
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw FileError(path_, static_cast<std::int64_t>(stream_.total_in), "gzip", problem);
  }

  /// Bytes written: less than asked only at the end of the data.
  std::size_t inflate_into(std::byte* to, std::size_t bytes) {
    constexpr std::size_t kMostAtOnce = std::numeric_limits<uInt>::max();  // zlib counts in 32 bits
    std::size_t done = 0;
    while (done < bytes && !ended_) {
      if (stream_.avail_in == 0) {
        const std::size_t next = std::min(rest_.size(), kMostAtOnce);
        stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(rest_.data()));
        stream_.avail_in = static_cast<uInt>(next);
        rest_ = rest_.subspan(next);
      }
      const auto room = static_cast<uInt>(std::min(bytes - done, kMostAtOnce));
      stream_.next_out = reinterpret_cast<Bytef*>(to + done);
      stream_.avail_out = room;
      const int status = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      if (status == Z_STREAM_END)
        ended_ = true;
      else if (status == Z_BUF_ERROR)
        break;
      else if (status != Z_OK)
        fail(stream_.msg ? stream_.msg : "cannot be read");
    }
    return done;
  }

  std::span<const std::byte> rest_;
  const std::string& path_;
  z_stream stream_{};
  bool ended_ = false;
};

/// The shape that the file's first bytes tell; `read(to, bytes)` gives the next ones.
template <class Read>
Shape read_header(const std::string& path, Read&& read) {
  std::array<std::byte, 4> magic{};
  read(magic.data(), magic.size());
  if (magic[0] != std::byte{0} || magic[1] != std::byte{0})
    throw FileError(path, 0, "magic", "is not 00 00: not an IDX file");
  const int type = std::to_integer<int>(magic[2]);
  const int rank = std::to_integer<int>(magic[3]);
  BURIN_CHECK(type == 0x08, DTypeError, "{}: IDX type 0x{:02X} is not supported, only 0x08 (unsigned bytes)",
              path, type);
  if (rank < 1 || rank > kMaxRank)
    throw FileError(path, 3, "rank", fmt::format("{} is not from 1 to {}", rank, kMaxRank));
  IntList extents;
  for (int axis = 0; axis < rank; ++axis) {
    std::array<std::byte, 4> big_endian{};
    read(big_endian.data(), big_endian.size());
    std::int64_t extent = 0;
    for (const std::byte b : big_endian) extent = extent << 8 | std::to_integer<std::int64_t>(b);
    extents.push_back(extent);
  }
  try {
    return Shape(extents);
  } catch (const ShapeError& e) {
    throw FileError(path, 4, "dimensions", e.what());
  }
}

Tensor load_gzip(std::span<const std::byte> file, const std::string& path) {
  GzipReader gzip(file, path);
  const Shape shape = read_header(path, [&](std::byte* to, std::size_t bytes) { gzip.read(to, bytes); });
  // Deflate spends at least one bit on 258 / 2 bytes, so a longer array cannot be there: found out before it
  // is allocated.
  constexpr std::uint64_t kLargestRatio = 1032;
  if (static_cast<std::uint64_t>(shape.count()) / kLargestRatio > file.size())
    throw FileError(path, 4, "dimensions",
                    fmt::format("{} do not fit a compressed file of {} bytes", shape, file.size()));
  Tensor out = allocate_host("load_idx", dense_spec(DType::u8, shape, Device::cpu()));
  gzip.read(static_cast<std::byte*>(out.raw()), out.bytes());
  gzip.finish();
  return out;
}

Tensor load_plain(std::shared_ptr<const MappedFile> file, const std::string& path) {
  const std::span<std::byte> bytes = file->bytes();
  std::size_t at = 0;
  const Shape shape = read_header(path, [&](std::byte* to, std::size_t count) {
    if (count > bytes.size() - at)
      throw FileError(path, static_cast<std::int64_t>(at), "header", "the file ends");
    std::copy_n(bytes.data() + at, count, to);
    at += count;
  });
  const std::span<std::byte> data = bytes.subspan(at);
  if (static_cast<std::uint64_t>(shape.count()) != data.size())
    throw FileError(path, static_cast<std::int64_t>(at), "data",
                    fmt::format("{} bytes are not the {} of {}", data.size(), shape.count(), shape));
  return view_host(path, static_cast<std::int64_t>(at), data, std::move(file), shape,
                   contiguous_strides(shape), DType::u8);
}

}  // namespace

Tensor load_idx(const std::string& path) {
  auto file = std::make_shared<const MappedFile>(path);
  const std::span<std::byte> bytes = file->bytes();
  const bool gzip = bytes.size() >= 2 && bytes[0] == std::byte{0x1F} && bytes[1] == std::byte{0x8B};
  return gzip ? load_gzip(bytes, path) : load_plain(std::move(file), path);
}

}  // namespace burin::io
