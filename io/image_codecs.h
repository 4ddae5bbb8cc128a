#pragma once
// Private.

#include <burin/io/image.h>

namespace burin::io {

bool is_png(std::span<const std::byte> file);
bool is_jpeg(std::span<const std::byte> file);
Image decode_png(std::span<const std::byte> file, const std::string& path);
Image decode_jpeg(std::span<const std::byte> file, const std::string& path);

/// A zeroed image. Throws FileError for more than 100 million pixels.
Image make_image(const std::string& path, std::uint64_t width, std::uint64_t height, int channels);

/// The Exif orientation, 1 to 8, in the content of a JPEG's APP1 marker; 1 if there is none or it is
/// malformed.
int exif_orientation(std::span<const std::byte> marker);
/// The image turned and mirrored so that a picture of this orientation stands upright.
Image upright(Image image, int orientation);

}  // namespace burin::io
