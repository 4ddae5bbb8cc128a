#pragma once

#include <burin/runtime/export.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace burin::io {

/// A picture of 8 bits a channel: rows from the top, pixels from the left, channels interleaved.
struct Image {
  int width = 0;
  int height = 0;
  int channels = 0;  // 1 gray, 2 gray + alpha, 3 RGB, 4 RGBA; alpha 255 is opaque
  std::vector<std::uint8_t> pixels;
};

/// Reads a PNG (any colour type, depth and interlacing; 16 bits are rounded to 8) or a JPEG (gray, colour or
/// CMYK; baseline or progressive; turned upright as its Exif orientation says), told apart by their first
/// bytes. The channels are those of the file: a palette gives RGB(A), CMYK gives RGB. Throws FileError, with
/// the library's own words, for anything malformed or truncated, and for more than 100 million pixels.
BURIN_API Image load_image(const std::string& path);
/// The same from bytes in memory; `path` is what errors call them.
BURIN_API Image decode_image(std::span<const std::byte> file, const std::string& path = "<memory>");

/// One channel: luma 0.299 R + 0.587 G + 0.114 B (Rec. 601), after transparent pixels were put on
/// `background`. Throws ShapeError if the pixels are not width * height * channels bytes, or channels not 1
/// to 4.
BURIN_API Image to_gray(const Image& image, std::uint8_t background = 255);

/// Another size, >= 1 each way: a pixel of the result is the mean of the area that it covers in the original.
/// Alpha is averaged as any channel, so composite first. Throws ShapeError, as to_gray and for sizes below 1.
BURIN_API Image resize_area(const Image& image, int width, int height);

}  // namespace burin::io
