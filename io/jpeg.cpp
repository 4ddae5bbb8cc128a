#include <burin/io/image_codecs.h>
#include <burin/runtime/error.h>

#include <csetjmp>
#include <cstdio>

#include <jpeglib.h>
// after jpeglib.h, which it needs
#include <jerror.h>

namespace burin::io {
namespace {

/// libjpeg tells an error by calling a function that must not return. Here that jumps back into guarded(),
/// past frames of C and of steps whose variables need no destructor; what does need one lives outside.
class Decoder {
 public:
  Decoder(std::span<const std::byte> file, const std::string& path) : file_(file), path_(path) {
    jpeg_.err = jpeg_std_error(&errors_);
    jpeg_.client_data = this;
    errors_.error_exit = [](j_common_ptr jpeg) { self(jpeg).jump(jpeg); };
    errors_.emit_message = [](j_common_ptr jpeg, int level) { self(jpeg).check_warning(jpeg, level); };
    errors_.output_message = [](j_common_ptr) {};
    progress_.progress_monitor = [](j_common_ptr jpeg) { self(jpeg).check_scans(jpeg); };
    guarded([](Decoder& d) {
      jpeg_create_decompress(&d.jpeg_);
      d.jpeg_.progress = &d.progress_;
      jpeg_save_markers(&d.jpeg_, JPEG_APP0 + 1, 0xFFFF);
    });
  }
  ~Decoder() { jpeg_destroy_decompress(&jpeg_); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  Image decode() {
    guarded([](Decoder& d) {
      jpeg_mem_src(&d.jpeg_, reinterpret_cast<const unsigned char*>(d.file_.data()), d.file_.size());
      jpeg_read_header(&d.jpeg_, TRUE);
      switch (d.jpeg_.jpeg_color_space) {
        case JCS_GRAYSCALE: d.jpeg_.out_color_space = JCS_GRAYSCALE; break;
        case JCS_CMYK:
        case JCS_YCCK: d.jpeg_.out_color_space = JCS_CMYK; break;
        default: d.jpeg_.out_color_space = JCS_RGB;
      }
      jpeg_calc_output_dimensions(&d.jpeg_);
    });
    const int stored = orientation();  // jpeg_finish_decompress drops the markers
    image_ = make_image(path_, jpeg_.output_width, jpeg_.output_height, jpeg_.output_components);
    guarded([](Decoder& d) {
      jpeg_start_decompress(&d.jpeg_);
      const std::size_t row_bytes =
          std::size_t{d.jpeg_.output_width} * static_cast<std::size_t>(d.jpeg_.output_components);
      while (d.jpeg_.output_scanline < d.jpeg_.output_height) {
        JSAMPROW row = d.image_.pixels.data() + d.jpeg_.output_scanline * row_bytes;
        jpeg_read_scanlines(&d.jpeg_, &row, 1);
      }
      jpeg_finish_decompress(&d.jpeg_);
    });
    if (jpeg_.out_color_space == JCS_CMYK) image_ = cmyk_to_rgb();
    return upright(std::move(image_), stored);
  }

 private:
  static Decoder& self(j_common_ptr jpeg) { return *static_cast<Decoder*>(jpeg->client_data); }

  void guarded(void (*step)(Decoder&)) {
    if (setjmp(back_) != 0) throw FileError(path_, -1, "JPEG", message_);
    step(*this);
  }

  [[noreturn]] void jump(j_common_ptr jpeg) {
    jpeg->err->format_message(jpeg, message_);
    std::longjmp(back_, 1);
  }

  /// libjpeg fills what is missing with gray and warns; here that is an error.
  void check_warning(j_common_ptr jpeg, int level) {
    if (level < 0 && (jpeg->err->msg_code == JWRN_JPEG_EOF || jpeg->err->msg_code == JWRN_HIT_MARKER))
      jump(jpeg);
  }

  /// A small file may hold thousands of scans, each of which costs a pass over the picture.
  void check_scans(j_common_ptr jpeg) {
    constexpr int kMostScans = 500;
    if (jpeg_.input_scan_number <= kMostScans) return;
    std::snprintf(message_, sizeof message_, "more than %d scans", kMostScans);
    static_cast<void>(jpeg);
    std::longjmp(back_, 1);
  }

  Image cmyk_to_rgb() const {
    Image rgb = make_image(path_, static_cast<std::uint64_t>(image_.width),
                           static_cast<std::uint64_t>(image_.height), 3);
    const bool inverted = jpeg_.saw_Adobe_marker;  // Adobe's files store 255 - ink
    const std::uint8_t* from = image_.pixels.data();
    for (std::size_t i = 0; i < rgb.pixels.size(); i += 3, from += 4) {
      const int white = inverted ? from[3] : 255 - from[3];
      for (std::size_t c = 0; c < 3; ++c) {
        const int light = inverted ? from[c] : 255 - from[c];
        rgb.pixels[i + c] = static_cast<std::uint8_t>((light * white + 127) / 255);
      }
    }
    return rgb;
  }

  int orientation() const {
    for (const jpeg_marker_struct* marker = jpeg_.marker_list; marker; marker = marker->next) {
      const int found = exif_orientation(std::as_bytes(std::span(marker->data, marker->data_length)));
      if (found != 1) return found;
    }
    return 1;
  }

  std::span<const std::byte> file_;
  const std::string& path_;
  jpeg_decompress_struct jpeg_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf back_{};
  char message_[JMSG_LENGTH_MAX] = {};
  Image image_;
};

}  // namespace

bool is_jpeg(std::span<const std::byte> file) {
  return file.size() >= 3 && file[0] == std::byte{0xFF} && file[1] == std::byte{0xD8} &&
         file[2] == std::byte{0xFF};
}

Image decode_jpeg(std::span<const std::byte> file, const std::string& path) {
  return Decoder(file, path).decode();
}

}  // namespace burin::io
