#include <burin/io/image.h>
#include <burin/io/image_codecs.h>
#include <burin/io/mapped_file.h>
#include <burin/runtime/check.h>

#include <algorithm>
#include <cmath>

namespace burin::io {
namespace {

constexpr std::uint64_t kMaxPixels = 100'000'000;

std::uint8_t round_to_byte(float value) { return static_cast<std::uint8_t>(value + 0.5f); }

/// One output pixel along an axis: the input pixels from `first` on, each with its share of the area.
struct Cover {
  int first = 0;
  std::vector<float> shares;  // sum 1
};

std::vector<Cover> covers(int from, int to) {
  std::vector<Cover> all(static_cast<std::size_t>(to));
  const double scale = static_cast<double>(from) / to;
  for (int i = 0; i < to; ++i) {
    const double begin = i * scale;
    const double end = std::min<double>((i + 1) * scale, from);
    Cover& cover = all[static_cast<std::size_t>(i)];
    cover.first = std::min(static_cast<int>(begin), from - 1);
    for (int at = cover.first; at == cover.first || at < end; ++at)
      cover.shares.push_back(
          static_cast<float>((std::min<double>(at + 1, end) - std::max<double>(at, begin)) / (end - begin)));
  }
  return all;
}

void check_image(const char* op, const Image& image) {
  const bool sized = image.width >= 1 && image.height >= 1 && image.channels >= 1 && image.channels <= 4 &&
                     image.pixels.size() / static_cast<std::size_t>(image.channels) /
                             static_cast<std::size_t>(image.width) ==
                         static_cast<std::size_t>(image.height) &&
                     image.pixels.size() % (static_cast<std::size_t>(image.width) *
                                            static_cast<std::size_t>(image.channels)) ==
                         0;
  BURIN_CHECK(sized, ShapeError, "{}: {} bytes are not an image of {} x {} pixels of {} channels (1 to 4)",
              op, image.pixels.size(), image.width, image.height, image.channels);
}

}  // namespace

Image make_image(const std::string& path, std::uint64_t width, std::uint64_t height, int channels) {
  if (width == 0 || height == 0 || width > kMaxPixels || height > kMaxPixels / width)
    throw FileError(path, -1, "size",
                    fmt::format("{} x {} is not from 1 to {} pixels", width, height, kMaxPixels));
  Image image{static_cast<int>(width), static_cast<int>(height), channels, {}};
  image.pixels.resize(width * height * static_cast<std::uint64_t>(channels));
  return image;
}

Image load_image(const std::string& path) {
  const MappedFile file(path);
  return decode_image(file.bytes(), path);
}

Image decode_image(std::span<const std::byte> file, const std::string& path) {
  if (is_png(file)) return decode_png(file, path);
  if (is_jpeg(file)) return decode_jpeg(file, path);
  throw FileError(path, 0, "magic", "neither a PNG nor a JPEG");
}

Image to_gray(const Image& image, std::uint8_t background) {
  check_image("to_gray", image);
  Image gray{image.width, image.height, 1, {}};
  const auto channels = static_cast<std::size_t>(image.channels);
  gray.pixels.reserve(image.pixels.size() / channels);
  for (std::size_t i = 0; i + channels <= image.pixels.size(); i += channels) {
    const std::uint8_t* p = image.pixels.data() + i;
    float luma = p[0];
    if (channels >= 3) luma = 0.299f * p[0] + 0.587f * p[1] + 0.114f * p[2];
    if (channels == 2 || channels == 4) {
      const float alpha = static_cast<float>(p[channels - 1]) / 255.0f;
      luma = luma * alpha + background * (1.0f - alpha);
    }
    gray.pixels.push_back(round_to_byte(luma));
  }
  return gray;
}

Image resize_area(const Image& image, int width, int height) {
  check_image("resize_area", image);
  BURIN_CHECK(width >= 1 && height >= 1, ShapeError, "resize_area: {} x {} is not a size", width, height);
  const std::vector<Cover> columns = covers(image.width, width);
  const std::vector<Cover> rows = covers(image.height, height);
  const auto channels = static_cast<std::size_t>(image.channels);
  const std::size_t in_row = static_cast<std::size_t>(image.width) * channels;
  const std::size_t out_row = static_cast<std::size_t>(width) * channels;
  Image out{width, height, image.channels, {}};
  out.pixels.reserve(out_row * static_cast<std::size_t>(height));
  std::vector<float> narrow(out_row);  // the rows of one output row, averaged; first vertically
  std::vector<float> wide(in_row);
  for (const Cover& row : rows) {
    std::ranges::fill(wide, 0.0f);
    for (std::size_t k = 0; k < row.shares.size(); ++k) {
      const std::uint8_t* from = image.pixels.data() + (static_cast<std::size_t>(row.first) + k) * in_row;
      for (std::size_t i = 0; i < in_row; ++i) wide[i] += row.shares[k] * from[i];
    }
    for (std::size_t x = 0; x < columns.size(); ++x) {
      for (std::size_t c = 0; c < channels; ++c) {
        float sum = 0;
        for (std::size_t k = 0; k < columns[x].shares.size(); ++k)
          sum += columns[x].shares[k] * wide[(static_cast<std::size_t>(columns[x].first) + k) * channels + c];
        narrow[x * channels + c] = sum;
      }
    }
    for (const float value : narrow) out.pixels.push_back(round_to_byte(std::min(value, 255.0f)));
  }
  return out;
}

}  // namespace burin::io
