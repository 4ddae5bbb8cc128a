#include <burin/io/image_codecs.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace burin::io {
namespace {

/// Numbers of a TIFF structure, in its byte order; 0 past the end.
struct Tiff {
  std::span<const std::byte> bytes;
  bool big_endian;

  std::uint32_t number(std::size_t at, std::size_t size) const {
    if (at > bytes.size() || size > bytes.size() - at) return 0;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < size; ++i)
      value = value << 8 | std::to_integer<std::uint32_t>(bytes[at + (big_endian ? i : size - 1 - i)]);
    return value;
  }
};

}  // namespace

int exif_orientation(std::span<const std::byte> marker) {
  constexpr std::string_view kExif{"Exif\0\0", 6};
  const std::string_view text(reinterpret_cast<const char*>(marker.data()), marker.size());
  if (!text.starts_with(kExif)) return 1;
  const std::string_view order = text.substr(kExif.size(), 2);
  if (order != "II" && order != "MM") return 1;
  const Tiff tiff{marker.subspan(kExif.size()), order == "MM"};
  const std::size_t directory = tiff.number(4, 4);
  const std::uint32_t entries = tiff.number(directory, 2);
  for (std::uint32_t i = 0; i < entries; ++i) {
    constexpr std::uint32_t kOrientation = 0x0112;
    const std::size_t entry = directory + 2 + std::size_t{12} * i;
    if (tiff.number(entry, 2) != kOrientation) continue;
    const std::uint32_t value = tiff.number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image upright(Image image, int orientation) {
  if (orientation == 1) return image;
  // Where the stored rows and columns run in the upright picture (Exif 2.32, table 6).
  const bool swaps = orientation >= 5;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image out = image;
  if (swaps) std::swap(out.width, out.height);
  const auto channels = static_cast<std::size_t>(image.channels);
  for (int y = 0; y < out.height; ++y) {
    for (int x = 0; x < out.width; ++x) {
      int column = swaps ? y : x;
      int row = swaps ? x : y;
      if (from_right) column = image.width - 1 - column;
      if (from_bottom) row = image.height - 1 - row;
      const std::size_t from = (static_cast<std::size_t>(row) * static_cast<std::size_t>(image.width) +
                                static_cast<std::size_t>(column)) *
                               channels;
      const std::size_t to =
          (static_cast<std::size_t>(y) * static_cast<std::size_t>(out.width) + static_cast<std::size_t>(x)) *
          channels;
      std::copy_n(image.pixels.data() + from, channels, out.pixels.data() + to);
    }
  }
  return out;
}

}  // namespace burin::io
