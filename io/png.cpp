#include <burin/io/image_codecs.h>
#include <burin/runtime/error.h>

#include <algorithm>

#include <png.h>

namespace burin::io {
namespace {

/// libpng's simplified interface: its errors come back as values, so no longjmp crosses C++ frames.
class Decoder {
 public:
  explicit Decoder(const std::string& path) : path_(path) { image_.version = PNG_IMAGE_VERSION; }
  ~Decoder() { png_image_free(&image_); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  Image decode(std::span<const std::byte> file) {
    if (!png_image_begin_read_from_memory(&image_, file.data(), file.size())) fail();
    image_.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // 16 bits are as sRGB as 8, unless the file says otherwise
    image_.format &= PNG_FORMAT_FLAG_COLOR | PNG_FORMAT_FLAG_ALPHA;
    Image out = make_image(path_, image_.width, image_.height,
                           static_cast<int>(PNG_IMAGE_SAMPLE_CHANNELS(image_.format)));
    if (!png_image_finish_read(&image_, nullptr, out.pixels.data(), 0, nullptr)) fail();
    return out;
  }

 private:
  [[noreturn]] void fail() const { throw FileError(path_, -1, "PNG", image_.message); }

  const std::string& path_;
  png_image image_{};
};

}  // namespace

bool is_png(std::span<const std::byte> file) {
  return file.size() >= 8 && png_sig_cmp(reinterpret_cast<png_const_bytep>(file.data()), 0, 8) == 0;
}

Image decode_png(std::span<const std::byte> file, const std::string& path) {
  return Decoder(path).decode(file);
}

}  // namespace burin::io
