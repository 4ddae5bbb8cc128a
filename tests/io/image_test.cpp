#include <burin/io/idx.h>
#include <burin/io/image.h>
#include <io/io_test_support.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <jpeglib.h>
#include <zlib.h>

namespace burin::test {
namespace {

using io::Image;
using ::testing::HasSubstr;
using Pixels = std::vector<std::uint8_t>;

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

std::string chunk(const std::string& kind, const std::string& body) {
  const std::string text = kind + body;
  const auto crc = crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size()));
  return big_endian(static_cast<std::uint32_t>(body.size())) + text +
         big_endian(static_cast<std::uint32_t>(crc));
}

/// A PNG of rows that are already packed; `extra` holds chunks before the data.
std::string png(std::uint32_t width, std::uint32_t height, char depth, char colour,
                const std::vector<std::string>& rows, const std::string& extra = "") {
  std::string raw;
  for (const std::string& row : rows) raw += '\0' + row;
  uLongf packed_size = compressBound(static_cast<uLong>(raw.size()));
  std::string packed(packed_size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &packed_size, reinterpret_cast<const Bytef*>(raw.data()),
           static_cast<uLong>(raw.size()));
  packed.resize(packed_size);
  return "\x89PNG\r\n\x1a\n" +
         chunk("IHDR", big_endian(width) + big_endian(height) + std::string{depth, colour, 0, 0, 0}) + extra +
         chunk("IDAT", packed) + chunk("IEND", "");
}

Image decode(const std::string& file) { return io::decode_image(std::as_bytes(std::span(file))); }

std::string refusal(const std::string& file) {
  return message_of<FileError>([&] { decode(file); });
}

void expect_image(const Image& image, int width, int height, int channels, const Pixels& pixels) {
  EXPECT_EQ(image.width, width);
  EXPECT_EQ(image.height, height);
  EXPECT_EQ(image.channels, channels);
  EXPECT_EQ(image.pixels, pixels);
}

/// What the calls of a libjpeg compressor `set` up and write.
std::string jpeg(const Image& image, J_COLOR_SPACE space,
                 const std::function<void(j_compress_ptr)>& after_start = {}) {
  jpeg_compress_struct c{};
  jpeg_error_mgr errors{};
  c.err = jpeg_std_error(&errors);
  jpeg_create_compress(&c);
  unsigned char* data = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&c, &data, &size);
  c.image_width = static_cast<JDIMENSION>(image.width);
  c.image_height = static_cast<JDIMENSION>(image.height);
  c.input_components = image.channels;
  c.in_color_space = space;
  jpeg_set_defaults(&c);
  jpeg_set_quality(&c, 100, TRUE);
  jpeg_start_compress(&c, TRUE);
  if (after_start) after_start(&c);
  for (std::size_t y = 0; y < c.image_height; ++y) {
    auto* row = const_cast<JSAMPLE*>(image.pixels.data() +
                                     y * c.image_width * static_cast<std::size_t>(image.channels));
    jpeg_write_scanlines(&c, &row, 1);
  }
  jpeg_finish_compress(&c);
  jpeg_destroy_compress(&c);
  std::string file(reinterpret_cast<char*>(data), size);
  std::free(data);
  return file;
}

/// 32 x 16 pixels in quadrants: top left, top right, bottom left, bottom right.
Image quadrants(const std::vector<Pixels>& colours) {
  Image image{32, 16, static_cast<int>(colours[0].size()), {}};
  for (int y = 0; y < 16; ++y)
    for (int x = 0; x < 32; ++x) {
      const Pixels& colour = colours[static_cast<std::size_t>(y / 8 * 2 + x / 16)];
      image.pixels.insert(image.pixels.end(), colour.begin(), colour.end());
    }
  return image;
}

/// The four corners' pixels, in the same order, one after the other.
Pixels corners(const Image& image) {
  Pixels out;
  for (const int y : {0, image.height - 1})
    for (const int x : {0, image.width - 1})
      for (int c = 0; c < image.channels; ++c)
        out.push_back(image.pixels[static_cast<std::size_t>((y * image.width + x) * image.channels + c)]);
  return out;
}

TEST(Png, EveryColourTypeAndDepth) {
  const std::string palette = chunk("PLTE", std::string("\x01\x02\x03\x0A\x14\x1E\xFF\xFE\xFD", 9));
  expect_image(decode(png(3, 2, 8, 0, {"\x01\x02\x03", "\xFD\xFE\xFF"})), 3, 2, 1, {1, 2, 3, 253, 254, 255});
  expect_image(decode(png(3, 1, 1, 0, {"\xA0"})), 3, 1, 1, {255, 0, 255});
  expect_image(decode(png(3, 1, 2, 0, {"\x6C"})), 3, 1, 1, {85, 170, 255});
  expect_image(decode(png(3, 1, 4, 0, {std::string("\x1F\x70", 2)})), 3, 1, 1, {17, 255, 119});
  expect_image(decode(png(1, 1, 8, 2, {"\x01\x80\xFF"})), 1, 1, 3, {1, 128, 255});
  expect_image(decode(png(1, 1, 8, 4, {"\x07\x80"})), 1, 1, 2, {7, 128});
  expect_image(decode(png(1, 1, 8, 6, {"\x01\x80\xFF\x40"})), 1, 1, 4, {1, 128, 255, 64});
  expect_image(decode(png(3, 1, 8, 3, {std::string("\x02\x00\x01", 3)}, palette)), 3, 1, 3,
               {255, 254, 253, 1, 2, 3, 10, 20, 30});
  expect_image(decode(png(3, 1, 2, 3, {"\x84"}, palette)), 3, 1, 3, {255, 254, 253, 1, 2, 3, 10, 20, 30});
  expect_image(decode(png(2, 1, 8, 3, {std::string("\x00\x01", 2)}, palette + chunk("tRNS", "\x40"))), 2, 1,
               4, {1, 2, 3, 64, 10, 20, 30, 255});
  expect_image(decode(png(2, 1, 8, 0, {"\x05\x06"}, chunk("tRNS", std::string("\0\x05", 2)))), 2, 1, 2,
               {5, 0, 6, 255});
}

TEST(Png, Rounds16BitsTo8) {
  for (int v = 0; v < 256; ++v) {
    const std::string sample(2, static_cast<char>(v));
    EXPECT_EQ(decode(png(1, 1, 16, 0, {sample})).pixels[0], v);
    EXPECT_EQ(decode(png(1, 1, 16, 2, {sample + sample + sample})).pixels[2], v);
    EXPECT_EQ(decode(png(1, 1, 16, 6, {sample + sample + sample + "\xFF\xFF"})).pixels[1], v);
  }
}

TEST(Png, ReadsTheTestPictures) {
  const std::string folder = test_data("../../examples/cnn/data/");
  const Tensor images = io::load_idx(folder + "test-images-idx3-ubyte.gz");
  const Tensor labels = io::load_idx(folder + "test-labels-idx1-ubyte.gz");
  const auto digit = [&](int label, int nth = 0) {
    std::int64_t i = 0;
    while (labels.data<std::uint8_t>()[i] != label || nth-- > 0) ++i;
    const std::uint8_t* pixels = images.data<std::uint8_t>() + i * 784;
    return Pixels(pixels, pixels + 784);
  };
  expect_image(io::load_image(test_data("images/digit0_gray8_light_on_dark.png")), 28, 28, 1, digit(0));
  expect_image(io::load_image(test_data("images/digit2_gray16_light_on_dark.png")), 28, 28, 1, digit(2));
  Pixels with_alpha;
  for (const std::uint8_t v : digit(6, 1)) with_alpha.insert(with_alpha.end(), {v, 255});
  expect_image(io::load_image(test_data("images/digit6_graya_light_on_dark.png")), 28, 28, 2, with_alpha);

  const Image clear = io::load_image(test_data("images/digit4_rgba_dark_on_transparent.png"));
  EXPECT_EQ(clear.channels, 4);
  const Image on_white = io::to_gray(clear, 255);
  for (std::size_t i = 0; i < on_white.pixels.size(); ++i)
    EXPECT_EQ(on_white.pixels[i], 255 - clear.pixels[4 * i + 3]);

  // The same picture drawn by rows and by Adam7 passes differ in colour only: the blend is monotonous in red.
  const Image interlaced = io::load_image(test_data("images/digit2_rgb_interlaced_light_on_dark.png"));
  EXPECT_EQ(interlaced.width, 45);
  EXPECT_EQ(interlaced.height, 51);
  EXPECT_EQ(corners(interlaced), (Pixels{60, 0, 20, 60, 0, 20, 60, 0, 20, 60, 0, 20}));
  EXPECT_EQ(io::load_image(test_data("images/digit8_palette_dark_on_light.png")).channels, 3);
  EXPECT_EQ(io::load_image(test_data("images/digit9_1bit_dark_on_light.png")).pixels[0], 255);
}

TEST(Png, RefusesMalformedFiles) {
  const std::string good = png(3, 2, 8, 0, {"\x01\x02\x03", "\xFD\xFE\xFF"});
  std::string bad_crc = good;
  bad_crc[31] = static_cast<char>(bad_crc[31] ^ 1);
  EXPECT_THAT(refusal(bad_crc), HasSubstr("PNG: "));
  EXPECT_THAT(refusal(png(100'000, 100'000, 8, 0, {"a"})),
              HasSubstr("100000 x 100000 is not from 1 to 100000000 pixels"));
  EXPECT_THAT(refusal(png(10'001, 10'000, 8, 6, {"a"})), HasSubstr("10001 x 10000"));
  EXPECT_THAT(refusal(png(0, 1, 8, 0, {"a"})), HasSubstr("PNG: "));
  EXPECT_THAT(refusal(png(1, 1, 3, 0, {"a"})), HasSubstr("PNG: "));
  EXPECT_THAT(refusal(png(4, 4, 8, 0, {"abcd"})), HasSubstr("PNG: "));
  EXPECT_THAT(refusal(png(1, 1, 8, 3, {"a"})), HasSubstr("PNG: "));
  EXPECT_THAT(refusal("not what it should be"), HasSubstr("neither a PNG nor a JPEG"));
  EXPECT_THAT(refusal(""), HasSubstr("<memory> at byte 0, magic: neither"));
  EXPECT_THAT(message_of<FileError>([] { io::load_image("/nowhere/x.png"); }),
              HasSubstr("/nowhere/x.png: cannot open"));
  EXPECT_THAT(message_of<FileError>([] { io::load_image(test_data("images")); }),
              HasSubstr("is a directory"));
}

TEST(Jpeg, GrayColourAndCmyk) {
  const auto expect_close = [](const Pixels& actual, const Pixels& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 3) << i;
  };
  const Image gray = decode(jpeg(quadrants({{10}, {80}, {160}, {240}}), JCS_GRAYSCALE));
  EXPECT_EQ(gray.channels, 1);
  expect_close(corners(gray), {10, 80, 160, 240});
  const Image rgb =
      decode(jpeg(quadrants({{200, 30, 40}, {10, 220, 90}, {0, 0, 255}, {250, 250, 0}}), JCS_RGB));
  EXPECT_EQ(rgb.channels, 3);
  expect_close(corners(rgb), {200, 30, 40, 10, 220, 90, 0, 0, 255, 250, 250, 0});
  // libjpeg marks CMYK as Adobe's, which stores 255 - ink.
  const Image cmyk = decode(
      jpeg(quadrants({{255, 0, 255, 255}, {100, 200, 50, 255}, {255, 255, 255, 0}, {255, 128, 0, 128}}),
           JCS_CMYK));
  EXPECT_EQ(cmyk.channels, 3);
  expect_close(corners(cmyk), {255, 0, 255, 100, 200, 50, 0, 0, 0, 128, 64, 0});
}

TEST(Jpeg, ReadsTheTestPictures) {
  const std::pair<const char*, int> files[] = {{"digit3_gray_light_on_dark", 1},
                                               {"digit5_gray_dark_on_light", 1},
                                               {"digit6_rgb_dark_on_light", 3},
                                               {"digit7_rgb444_light_on_dark", 3},
                                               {"digit8_rgb_progressive_dark_on_light", 3},
                                               {"digit9_cmyk_dark_on_light", 3},
                                               {"digit4_photo_200x150_dark_on_light", 3}};
  for (const auto& [name, channels] : files) {
    const Image image = io::load_image(test_data(std::string("images/") + name + ".jpg"));
    EXPECT_EQ(image.channels, channels) << name;
    const bool light = std::string(name).ends_with("on_light");
    const int corner = io::to_gray(image).pixels[0];
    EXPECT_TRUE(light ? corner > 100 : corner < 60) << name << ": " << corner;
  }
}

TEST(Jpeg, StandsUprightAsExifSays) {
  // Where the quadrants 10, 80, 160, 240 of the stored picture come to lie.
  const std::pair<int, Pixels> cases[] = {
      {1, {10, 80, 160, 240}}, {2, {80, 10, 240, 160}}, {3, {240, 160, 80, 10}},
      {4, {160, 240, 10, 80}}, {5, {10, 160, 80, 240}}, {6, {160, 10, 240, 80}},
      {7, {240, 80, 160, 10}}, {8, {80, 240, 10, 160}}, {9, {10, 80, 160, 240}}};
  for (const bool big : {false, true}) {
    for (const auto& [orientation, expected] : cases) {
      const std::string value(1, static_cast<char>(orientation));
      std::string exif("Exif\0\0", 6);
      exif += big ? std::string("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", 19) + value +
                        std::string(6, '\0')
                  : std::string("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 18) + value +
                        std::string(7, '\0');
      const Image image =
          decode(jpeg(quadrants({{10}, {80}, {160}, {240}}), JCS_GRAYSCALE, [&](j_compress_ptr c) {
            jpeg_write_marker(c, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(exif.data()),
                              static_cast<unsigned>(exif.size()));
          }));
      EXPECT_EQ(image.width, orientation >= 5 && orientation <= 8 ? 16 : 32);
      const Pixels actual = corners(image);
      for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(actual[i], expected[i], 3) << orientation << " " << i;
    }
  }
}

TEST(Jpeg, RefusesMalformedFiles) {
  const std::string good = read_file(test_data("images/digit6_rgb_dark_on_light.jpg"));
  EXPECT_THAT(refusal(good.substr(0, good.size() / 2)), HasSubstr("JPEG: Premature end of JPEG file"));
  EXPECT_THAT(refusal("\xFF\xD8\xFF"), HasSubstr("JPEG: "));
  EXPECT_THAT(refusal(std::string("\xFF\xD8\xFF\xD9", 4)), HasSubstr("JPEG: "));
  std::string huge = good;
  const std::size_t frame = huge.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  for (std::size_t i = 5; i < 9; ++i) huge[frame + i] = '\xF0';
  EXPECT_THAT(refusal(huge), HasSubstr("61680 x 61680 is not from 1 to 100000000 pixels"));
}

class Images : public IoTest {};

TEST_F(Images, EveryTruncationIsRefused) {
  // The last bytes of a PNG (IEND) and of a JPEG (EOI) carry nothing; libraries accept files without them.
  const auto read = [](const std::string& path) { io::load_image(path); };
  const std::string good = read_file(test_data("images/digit0_gray8_light_on_dark.png"));
  expect_prefixes_refused(good.substr(0, good.size() - 12 - 4), read);
  const std::string picture = read_file(test_data("images/digit3_gray_light_on_dark.jpg"));
  for (std::size_t bytes = 1; bytes < picture.size(); ++bytes)
    ASSERT_NO_FATAL_FAILURE(expect_only_errors(picture.substr(0, bytes), read));
}

TEST_F(Images, FlippedBytesGiveOnlyErrors) {
  for (const char* name : {"digit2_rgb_interlaced_light_on_dark.png", "digit8_palette_dark_on_light.png",
                           "digit6_graya_light_on_dark.png", "digit7_rgb444_light_on_dark.jpg",
                           "digit8_rgb_progressive_dark_on_light.jpg", "digit9_cmyk_dark_on_light.jpg"})
    flip_bytes(read_file(test_data(std::string("images/") + name)), 3'500,
               [](const std::string& path) { io::load_image(path); });
}

TEST(Image, ToGray) {
  EXPECT_EQ(io::to_gray({2, 1, 1, {3, 250}}).pixels, (Pixels{3, 250}));
  EXPECT_EQ(io::to_gray({3, 1, 3, {255, 0, 0, 0, 255, 0, 0, 0, 255}}).pixels, (Pixels{76, 150, 29}));
  EXPECT_EQ(io::to_gray({1, 1, 3, {255, 255, 255}}).pixels, (Pixels{255}));
  EXPECT_EQ(io::to_gray({3, 1, 2, {10, 255, 10, 0, 10, 51}}, 200).pixels, (Pixels{10, 200, 162}));
  EXPECT_EQ(io::to_gray({1, 1, 4, {0, 0, 0, 0}}).pixels, (Pixels{255}));
}

TEST(Image, RefusesPixelsThatAreNotTheirSize) {
  for (const Image& bad : {Image{}, Image{2, 2, 0, Pixels(4)}, Image{2, 2, 5, Pixels(20)},
                           Image{2, 2, 1, Pixels(3)}, Image{2, 2, 1, Pixels(5)}, Image{-1, 2, 1, {}}}) {
    EXPECT_THROW(io::to_gray(bad), ShapeError);
    EXPECT_THROW(io::resize_area(bad, 1, 1), ShapeError);
  }
}

TEST(Image, ResizeArea) {
  EXPECT_EQ(io::resize_area({4, 2, 1, {0, 10, 20, 30, 40, 50, 60, 70}}, 2, 1).pixels, (Pixels{25, 45}));
  // 3 to 2: each pixel of the result covers one and a half.
  EXPECT_EQ(io::resize_area({3, 1, 1, {0, 90, 30}}, 2, 1).pixels, (Pixels{30, 50}));
  EXPECT_EQ(io::resize_area({1, 3, 2, {0, 1, 90, 1, 30, 1}}, 1, 2).pixels, (Pixels{30, 1, 50, 1}));
  EXPECT_EQ(io::resize_area({2, 1, 1, {0, 100}}, 4, 2).pixels, (Pixels{0, 0, 100, 100, 0, 0, 100, 100}));
  EXPECT_EQ(io::resize_area({2, 1, 1, {0, 100}}, 2, 1).pixels, (Pixels{0, 100}));
  const Image white{97, 61, 3, Pixels(97 * 61 * 3, 255)};
  EXPECT_EQ(io::resize_area(white, 28, 29).pixels, Pixels(28 * 29 * 3, 255));
  EXPECT_THROW(io::resize_area(white, 0, 5), ShapeError);
  EXPECT_THROW(io::resize_area(Image{}, 5, 5), ShapeError);
}

}  // namespace
}  // namespace burin::test
