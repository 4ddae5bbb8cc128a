#include <burin/io/mapped_file.h>
#include <burin/io/safetensors.h>
#include <burin/runtime/context.h>
#include <burin/runtime/copy.h>
#include <io/io_test_support.h>

#include <sys/stat.h>

namespace burin::test {
namespace {

using io::Safetensors;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(length >> (8 * i) & 0xFF);
  return file + rest;
}

/// A file of this header and so many bytes of data.
std::string file_of(const std::string& header, std::size_t data_bytes = 0) {
  return with_length(header.size(), header + std::string(data_bytes, '\0'));
}

class SafetensorsFile : public IoTest {
 protected:
  std::string refusal(const std::string& content) {
    return message_of<FileError>([&] { Safetensors::open(write(content)); });
  }
  std::function<void(const std::string&)> read_all() {
    return [this](const std::string& path) {
      for (const auto& [name, tensor] : Safetensors::open(path).all()) clone(ctx_, tensor);
    };
  }
  Context ctx_;
};

TEST_F(SafetensorsFile, ReadsTheReferenceFile) {
  const Safetensors file = Safetensors::open(test_data("reference_mixed.safetensors"));
  EXPECT_EQ(file.names().size(), 8u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.metadata().at("note"), "quotes \" and \u00fcn\u00efcode");
  EXPECT_TRUE(file.contains("f32"));
  EXPECT_FALSE(file.contains("f33"));

  EXPECT_EQ(file.get("f32").shape(), Shape({2, 3}));
  EXPECT_THAT(to_vector<float>(ctx_, file.get("f32")), ElementsAre(-0.5f, -0.25f, 0.0f, 0.25f, 0.5f, 0.75f));
  EXPECT_THAT(to_vector<float>(ctx_, to(ctx_, file.get("f16"), DType::f32)),
              ElementsAre(0.0f, -1.0f, 0.5f, 65504.0f, 0x1p-24f, INFINITY));
  EXPECT_THAT(to_vector<float>(ctx_, to(ctx_, file.get("bf16"), DType::f32)),
              ElementsAre(1.0f, -2.0f, 3.140625f, 0x1p100f));
  EXPECT_THAT(to_vector<std::int64_t>(ctx_, file.get("i64")),
              ElementsAre(0, 1, -1, std::int64_t{1} << 40, INT64_MIN, INT64_MAX));
  EXPECT_THAT(to_vector<std::uint8_t>(ctx_, file.get("u8")), ElementsAre(0, 1, 127, 128, 255));
  EXPECT_THAT(to_vector<bool>(ctx_, file.get("bool")), ElementsAre(true, false, true));
  EXPECT_EQ(file.get("scalar").rank(), 0);
  EXPECT_THAT(to_vector<float>(ctx_, file.get("scalar")), ElementsAre(2.5f));
  EXPECT_EQ(file.get("empty").shape(), Shape({0, 3}));
  EXPECT_EQ(file.all().size(), 8u);
}

TEST_F(SafetensorsFile, WritesWhatTheReferenceWrites) {
  const std::string reference = test_data("reference_mixed.safetensors");
  const Safetensors file = Safetensors::open(reference);
  io::save_safetensors(ctx_, path("copy"), file.all(), {{"only", "one"}});
  const Safetensors copy = Safetensors::open(path("copy"));
  EXPECT_EQ(copy.names(), file.names());
  EXPECT_THAT(copy.metadata(), ElementsAre(std::pair("only", "one")));
  // Names, offsets and data are the same bytes; only the metadata, whose order is arbitrary there, differs.
  const auto after_metadata = [](const std::string& bytes) {
    const std::string rest = bytes.substr(bytes.find("},") + 1);
    return rest.substr(0, rest.find("}}") + 2) + "|" +
           rest.substr(rest.find_first_not_of(' ', rest.find("}}") + 2));
  };
  EXPECT_EQ(after_metadata(read_file(path("copy"))), after_metadata(read_file(reference)));
}

TEST_F(SafetensorsFile, RoundTripsViewsAndText) {
  const Tensor x = arange(ctx_, 24).reshape({2, 3, 4});
  io::save_safetensors(ctx_, path("views"),
                       {{"permuted", x.permute({2, 0, 1})}, {"sliced \"\n\u00e9", x.slice(2, 1, 4, 2)}},
                       {{"k\u00e9y", "v\t"}});
  const Safetensors file = Safetensors::open(path("views"));
  EXPECT_EQ(to_vector<float>(ctx_, file.get("permuted")), to_vector<float>(ctx_, x.permute({2, 0, 1})));
  EXPECT_EQ(to_vector<float>(ctx_, file.get("sliced \"\n\u00e9")),
            to_vector<float>(ctx_, x.slice(2, 1, 4, 2)));
  EXPECT_EQ(file.metadata().at("k\u00e9y"), "v\t");
  io::save_safetensors(ctx_, path("views"), {});  // replaces the mapped file under the tensors
  EXPECT_EQ(to_vector<float>(ctx_, file.get("permuted"))[1], 4.0f);
  EXPECT_TRUE(Safetensors::open(path("views")).names().empty());
}

TEST_F(SafetensorsFile, TensorsOutliveTheFileAndNeverChangeIt) {
  io::save_safetensors(ctx_, path("file"), {{"x", arange(ctx_, 4)}});
  const std::string before = read_file(path("file"));
  Tensor x = Safetensors::open(path("file")).get("x");
  x.data<float>()[0] = 7;
  EXPECT_EQ(to_vector<float>(ctx_, x), (std::vector<float>{7, 1, 2, 3}));
  EXPECT_EQ(read_file(path("file")), before);
}

TEST_F(SafetensorsFile, WritingFailsWhole) {
  EXPECT_THAT(message_of<FileError>([&] { io::save_safetensors(ctx_, path("none/file"), {}); }),
              HasSubstr("none/file: cannot create a file there: No such file"));
  EXPECT_THROW(io::save_safetensors(ctx_, path("f"), {{"__metadata__", arange(ctx_, 1)}}), Error);
  EXPECT_THROW(io::save_safetensors(ctx_, path("f"), {{"x", Tensor()}}), Error);
  EXPECT_THROW(io::save_safetensors(ctx_, path("f"), {{"\xFF", arange(ctx_, 1)}}), Error);
  std::filesystem::create_directory(path("folder"));
  EXPECT_THROW(io::save_safetensors(ctx_, path("folder"), {}), FileError);
  EXPECT_EQ(files(), 1u) << "a temporary file is left";
}

TEST_F(SafetensorsFile, NamesWhatIsNoFile) {
  EXPECT_THAT(message_of<FileError>([&] { Safetensors::open(path("missing")); }),
              HasSubstr("missing: cannot open the file: No such file"));
  EXPECT_THAT(message_of<FileError>([&] { Safetensors::open(path("")); }), HasSubstr("is a directory"));
  EXPECT_THAT(refusal(""), HasSubstr("the file is empty"));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(message_of<FileError>([&] { Safetensors::open(path("pipe")); }),
              HasSubstr("not a regular file"));
}

TEST_F(SafetensorsFile, F1_HeaderLength) {
  const std::string header = R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  const std::string rest = header + "\x01";
  EXPECT_THAT(refusal(with_length(~0ull, rest)),
              HasSubstr("header length: 18446744073709551615 is above 100000000"));
  EXPECT_THAT(refusal(with_length(1ull << 63, rest)), HasSubstr("header length"));
  EXPECT_THAT(refusal(with_length(100'000'001, rest)), HasSubstr("100000001 is above 100000000"));
  EXPECT_THAT(refusal(with_length(100'000'000, rest)), HasSubstr("passes the end"));
  EXPECT_THAT(refusal(with_length(rest.size() + 1, rest)), HasSubstr("passes the end"));
  EXPECT_THAT(refusal(with_length(0, rest)), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(refusal(std::string(7, '\0')), HasSubstr("needs 8 bytes, the file has 7"));
  EXPECT_NO_THROW(Safetensors::open(write(with_length(header.size(), rest))));
}

TEST_F(SafetensorsFile, F4_SizesAndShapes) {
  const auto entry = [](const std::string& shape, std::size_t bytes) {
    return file_of(
        R"({"x":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,)" + std::to_string(bytes) + "]}}",
        bytes);
  };
  EXPECT_THAT(refusal(entry("[2,2]", 12)), HasSubstr("x: has 12 bytes of data, but F32 [2, 2] takes 16"));
  EXPECT_THAT(refusal(entry("[4294967296,4294967296]", 0)), HasSubstr("do not fit 63 bits"));
  EXPECT_THAT(refusal(entry("[4294967296,4294967296,0]", 0)), HasSubstr("do not fit 63 bits"));
  EXPECT_THAT(refusal(entry("[4611686018427387904]", 0)), HasSubstr("do not fit 63 bits"));
  EXPECT_THAT(refusal(entry("[9223372036854775808]", 0)), HasSubstr("shape past 63 bits"));
  EXPECT_EQ(Safetensors::open(write(entry("[0]", 0))).get("x").shape(), Shape({0}));
  EXPECT_EQ(Safetensors::open(write(entry("[0,4611686018427387904]", 0))).get("x").count(), 0);
  EXPECT_EQ(Safetensors::open(write(entry("[]", 4))).get("x").shape(), Shape());
}

TEST_F(SafetensorsFile, RefusesGapsAndOverlaps) {
  const auto two = [](const std::string& a, const std::string& b, std::size_t data) {
    return file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + a +
                       R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b + "}}",
                   data);
  };
  EXPECT_NO_THROW(Safetensors::open(write(two("[2,4]", "[0,2]", 4))));
  EXPECT_THAT(refusal(two("[0,2]", "[3,5]", 5)), HasSubstr("b: has data_offsets [3, 5] and must begin at 2"));
  EXPECT_THAT(refusal(two("[0,2]", "[1,3]", 3)), HasSubstr("b: has data_offsets [1, 3] and must begin at 2"));
  EXPECT_THAT(refusal(two("[0,2]", "[0,2]", 2)), HasSubstr("must begin at 2"));
  EXPECT_THAT(refusal(two("[1,3]", "[3,5]", 5)), HasSubstr("must begin at 0"));
  EXPECT_THAT(refusal(two("[0,2]", "[4,2]", 4)), HasSubstr("must begin at 2"));
  EXPECT_THAT(refusal(two("[0,2]", "[2,1]", 4)), HasSubstr("b: has data_offsets [2, 1]"));
  EXPECT_THAT(refusal(two("[0,2]", "[2,4]", 5)), HasSubstr("data: holds 5 bytes, but the tensors take 4"));
  EXPECT_THAT(refusal(two("[0,2]", "[2,4]", 3)), HasSubstr("data: holds 3 bytes, but the tensors take 4"));
}

TEST_F(SafetensorsFile, RefusesOtherHeaders) {
  const std::string good = R"("x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  const std::pair<std::string, std::string> cases[] = {
      {"{" + good + "," + good + "}", "x: is there twice"},
      {R"({"x":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "the field 'dtype' twice"},
      {R"({"x":{"dtype":"U8","shape":[1]}})", "x: lacks one of"},
      {R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}})", "unknown field 'more'"},
      {R"({"x":{"dtype":"U9","shape":[1],"data_offsets":[0,1]}})", "unknown dtype 'U9'"},
      {R"({"x":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", "does not end at a byte"},
      {R"({"x":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "negative number"},
      {R"({"x":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", "no 64-bit integer"},
      {R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551616]}})", "no 64-bit integer"},
      {R"({"x":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", "array where the format has none"},
      {R"({"x":{"dtype":"U8","shape":"1","data_offsets":[0,1]}})", "string where the format has none"},
      {R"({"x":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", "number where the format has none"},
      {R"({"x":{"dtype":["U8"],"shape":[1],"data_offsets":[0,1]}})", "array where the format has none"},
      {R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", "not two numbers"},
      {R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})", "number where the format has none"},
      {R"({"x":{"dtype":{},"shape":[1],"data_offsets":[0,1]}})", "object where the format has none"},
      {R"({"x":[1]})", "array where the format has none"},
      {R"({"x":null})", "holds a null"},
      {R"({"x":true})", "holds a boolean"},
      {R"({"__metadata__":{"a":1},)" + good + "}", "number where the format has none"},
      {R"({"__metadata__":{"a":{}},)" + good + "}", "object where the format has none"},
      {R"({"__metadata__":{"a":"b","a":"c"},)" + good + "}", "the field 'a' twice"},
      {R"({"__metadata__":"a",)" + good + "}", "string where the format has none"},
      {"{" + good, "header"},
      {"{" + good + "} x", "header"},
      {"{" + good + ",}", "header"},
      {" {" + good + "}", "does not begin with '{'"},
      {"[]", "does not begin with '{'"},
      {"{\"\xFF\":{}}", "header"},
      {"{\"x\":" + std::string(1'000'000, '['), "array where the format has none"},
      {[] {
         std::string deep = "{\"x\":";
         for (int i = 0; i < 100'000; ++i) deep += "{\"dtype\":";
         return deep;
       }(),
       "object where the format has none"},
      {R"({"x":{"dtype":"U8","shape":[1)" +
           [] {
             std::string ones;
             for (int i = 0; i < 64; ++i) ones += ",1";
             return ones;
           }() +
           R"(],"data_offsets":[0,1]}})",
       "more than 64 axes"},
  };
  for (const auto& [header, problem] : cases)
    EXPECT_THAT(refusal(file_of(header, 1)), HasSubstr(problem)) << header.substr(0, 200);
  EXPECT_NO_THROW(Safetensors::open(write(file_of("{" + good + "}   ", 1))));
  EXPECT_NO_THROW(Safetensors::open(write(file_of("{}"))));
}

TEST_F(SafetensorsFile, ListsTypesThatBurinLacksAndRefusesToReadThem) {
  const Safetensors file = Safetensors::open(write(file_of(
      R"({"a":{"dtype":"U16","shape":[1],"data_offsets":[0,2]},"b":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[2,4]},)"
      R"("c":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[4,5]}})",
      5)));
  EXPECT_THAT(file.names(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(message_of<DTypeError>([&] { file.get("a"); }), HasSubstr("a: dtype U16 is not supported"));
  EXPECT_THAT(message_of<DTypeError>([&] { file.get("b"); }), HasSubstr("b: dtype F8_E4M3 is not supported"));
  EXPECT_THAT(message_of<ShapeError>([&] { file.get("c"); }), HasSubstr("c: 9 axes are more than 8"));
  EXPECT_THAT(message_of<FileError>([&] { file.get("d"); }), HasSubstr("d: there is no such tensor"));
  EXPECT_THROW(file.all(), DTypeError);
}

TEST_F(SafetensorsFile, CopiesWhatIsNotAligned) {
  const std::string header = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  for (std::size_t pad = 0; pad < 4; ++pad) {
    const std::string padded = header + std::string(pad, ' ');
    const float value = 1.5f;
    const std::string data(reinterpret_cast<const char*>(&value), 4);
    const Tensor x = Safetensors::open(write(with_length(padded.size(), padded + data))).get("x");
    EXPECT_EQ(to_vector<float>(ctx_, x)[0], 1.5f);
  }
}

TEST_F(SafetensorsFile, RefusesBoolsThatAreNeither0Nor1) {
  const std::string header = R"({"x":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})";
  const std::string content = with_length(header.size(), header + std::string("\0\1\2", 3));
  const Safetensors file = Safetensors::open(write(content));
  EXPECT_THAT(message_of<FileError>([&] { file.get("x"); }),
              HasSubstr("at byte " + std::to_string(content.size() - 1) + ", bool: 2 is neither 0 nor 1"));
}

TEST_F(SafetensorsFile, EveryTruncationIsRefused) {
  expect_prefixes_refused(read_file(test_data("reference_mixed.safetensors")), read_all());
}

TEST_F(SafetensorsFile, FlippedBytesGiveOnlyErrors) {
  flip_bytes(read_file(test_data("reference_mixed.safetensors")), 20'000, read_all());
}

}  // namespace
}  // namespace burin::test
