#include <burin/io/idx.h>
#include <burin/runtime/context.h>
#include <burin/runtime/copy.h>
#include <io/io_test_support.h>

#include <zlib.h>

namespace burin::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

std::string idx(const std::vector<std::uint32_t>& extents, const std::string& data, char type = 8) {
  std::string file = {'\0', '\0', type, static_cast<char>(extents.size())};
  for (const std::uint32_t extent : extents) file += big_endian(extent);
  return file + data;
}

std::string gzip(const std::string& content) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(content.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

class Idx : public IoTest {
 protected:
  std::string refusal(const std::string& content) {
    return message_of<FileError>([&] { io::load_idx(write(content)); });
  }
};

TEST_F(Idx, ReadsPlainAndCompressed) {
  Context ctx;
  const std::string content = idx({2, 3}, "abcdef");
  for (const std::string& file : {content, gzip(content)}) {
    const Tensor x = io::load_idx(write(file));
    EXPECT_EQ(x.shape(), Shape({2, 3}));
    EXPECT_THAT(to_vector<std::uint8_t>(ctx, x), ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
  }
  for (const std::string& file : {idx({0, 28, 28}, ""), gzip(idx({0, 28, 28}, ""))})
    EXPECT_EQ(io::load_idx(write(file)).shape(), Shape({0, 28, 28}));
  // Near deflate's best ratio.
  const std::string zeros = idx({1000, 100, 100}, std::string(10'000'000, '\0'));
  EXPECT_EQ(io::load_idx(write(gzip(zeros))).count(), 10'000'000);
}

TEST_F(Idx, ReadsTheTestDigits) {
  const std::string folder = test_data("../../examples/cnn/data/");
  EXPECT_EQ(io::load_idx(folder + "test-images-idx3-ubyte.gz").shape(), Shape({2000, 28, 28}));
  const Tensor labels = io::load_idx(folder + "test-labels-idx1-ubyte.gz");
  EXPECT_EQ(labels.shape(), Shape({2000}));
  for (std::int64_t i = 0; i < 2000; ++i) EXPECT_LT(labels.data<std::uint8_t>()[i], 10);
}

TEST_F(Idx, RefusesMalformedFiles) {
  const std::string good = idx({2, 3}, "abcdef");
  const std::string packed = gzip(good);
  std::string bad_checksum = packed;
  bad_checksum[bad_checksum.size() - 5] = static_cast<char>(bad_checksum[bad_checksum.size() - 5] ^ 1);
  const std::pair<std::string, std::string> files[] = {
      {"not what it should be", "not an IDX file"},
      {idx({}, ""), "rank: 0 is not from 1 to 8"},
      {idx({1, 1, 1, 1, 1, 1, 1, 1, 1}, "a"), "rank: 9"},
      {idx({2, 3}, "abcde"), "5 bytes are not the 6 of [2, 3]"},
      {idx({2, 3}, "abcdefg"), "7 bytes are not the 6"},
      {idx({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, ""), "dimensions"},
      {gzip(idx({2, 3}, "abcde")), "ends too soon"},
      {gzip(idx({2, 3}, "abcdefg")), "more data than the dimensions say"},
      {gzip(idx({0xFFFFFFFF}, "a")), "do not fit a compressed file"},
      {gzip(idx({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, "")), "dimensions"},
      {packed + "x", "bytes follow the compressed data"},
      {packed + packed, "bytes follow the compressed data"},
      {packed.substr(0, packed.size() - 1), "ends too soon"},
      {bad_checksum, "incorrect data check"},
      {"\x1F\x8B", "ends too soon"},
  };
  for (const auto& [content, problem] : files) EXPECT_THAT(refusal(content), HasSubstr(problem));
  EXPECT_THAT(message_of<DTypeError>([&] { io::load_idx(write(idx({1}, "abcd", 0x0D))); }),
              HasSubstr("IDX type 0x0D"));
}

TEST_F(Idx, EveryTruncationIsRefused) {
  expect_prefixes_refused(idx({2, 3}, "abcdef"), [](const std::string& path) { io::load_idx(path); });
  expect_prefixes_refused(gzip(idx({20, 30}, std::string(600, 'a'))),
                          [](const std::string& path) { io::load_idx(path); });
}

TEST_F(Idx, FlippedBytesGiveOnlyErrors) {
  std::string data;
  for (int i = 0; i < 600; ++i) data += static_cast<char>(i * i);
  for (const std::string& good : {idx({20, 30}, data), gzip(idx({20, 30}, data))})
    flip_bytes(good, 10'000, [](const std::string& path) { io::load_idx(path); });
}

}  // namespace
}  // namespace burin::test
