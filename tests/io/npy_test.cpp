#include <burin/io/npy.h>
#include <burin/runtime/context.h>
#include <burin/runtime/copy.h>
#include <io/io_test_support.h>

#include <sys/stat.h>

namespace burin::test {
namespace {

using ::testing::HasSubstr;

std::string npy(const std::string& dict, const std::string& data, char major = 1) {
  std::string file = "\x93NUMPY";
  file += {major, '\0', static_cast<char>(dict.size() & 0xFF), static_cast<char>(dict.size() >> 8)};
  if (major > 1) file += std::string(2, '\0');
  return file + dict + data;
}

class Npy : public IoTest {
 protected:
  std::vector<double> load(const std::string& path) {
    return to_vector<double>(ctx_, to(ctx_, io::load_npy(path), DType::f64));
  }
  template <class E>
  std::string refusal(const std::string& content) {
    return message_of<E>([&] { io::load_npy(write(content)); });
  }
  std::function<void(const std::string&)> read() {
    return [this](const std::string& path) { clone(ctx_, io::load_npy(path)); };
  }
  Context ctx_;
};

TEST_F(Npy, ReadsWhatNumpyWrites) {
  const std::vector<double> reals{-1, -0.5, 0, 0.5, 1, 1.5};
  const std::pair<const char*, DType> files[] = {{"npy_f2.npy", DType::f16},
                                                 {"npy_f4.npy", DType::f32},
                                                 {"npy_f8.npy", DType::f64},
                                                 {"npy_fortran.npy", DType::f32},
                                                 {"npy_big_endian.npy", DType::f32}};
  for (const auto& [name, dtype] : files) {
    const Tensor x = io::load_npy(test_data(name));
    EXPECT_EQ(x.dtype(), dtype) << name;
    EXPECT_EQ(x.shape(), Shape({2, 3})) << name;
    EXPECT_EQ(load(test_data(name)), reals) << name;
  }
  EXPECT_EQ(io::load_npy(test_data("npy_fortran.npy")).strides(), Strides({1, 2}));
  EXPECT_EQ(load(test_data("npy_i8.npy")), (std::vector<double>{-3, -2, -1, 0, 1, 2}));
  EXPECT_EQ(io::load_npy(test_data("npy_i8.npy")).dtype(), DType::i64);
  EXPECT_EQ(load(test_data("npy_bool.npy")), (std::vector<double>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(io::load_npy(test_data("npy_bool.npy")).dtype(), DType::boolean);
}

TEST_F(Npy, WritesWhatNumpyWrites) {
  for (const char* name : {"npy_f2.npy", "npy_f4.npy", "npy_f8.npy", "npy_i8.npy", "npy_bool.npy"}) {
    io::save_npy(ctx_, path(name), io::load_npy(test_data(name)));
    EXPECT_EQ(read_file(path(name)), read_file(test_data(name))) << name;
  }
  io::save_npy(ctx_, path("c"), io::load_npy(test_data("npy_fortran.npy")));
  EXPECT_EQ(read_file(path("c")), read_file(test_data("npy_f4.npy")));
}

TEST_F(Npy, RoundTripsEveryShapeAndType) {
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{0}, Shape{2, 0, 3}, Shape{1, 2, 1, 2, 1, 2, 1, 3}}) {
    for (const DType dtype :
         {DType::f32, DType::f16, DType::f64, DType::i8, DType::u8, DType::i32, DType::i64, DType::boolean}) {
      const Tensor x = to(ctx_, arange(ctx_, shape.count()).reshape(shape.extents()), dtype);
      io::save_npy(ctx_, path("x"), x);
      const Tensor y = io::load_npy(path("x"));
      EXPECT_EQ(y.dtype(), dtype);
      EXPECT_EQ(y.shape(), shape);
      EXPECT_EQ(load(path("x")), to_vector<double>(ctx_, to(ctx_, x, DType::f64)));
      EXPECT_EQ(read_file(path("x")).size() % 64, x.bytes() % 64) << "data must begin at a multiple of 64";
    }
  }
  EXPECT_THAT(message_of<DTypeError>([&] { io::save_npy(ctx_, path("x"), zeros(ctx_, {1}, DType::bf16)); }),
              HasSubstr("save_npy: bf16 is not supported"));
  EXPECT_THROW(io::save_npy(ctx_, path("x"), Tensor()), Error);
}

TEST_F(Npy, ReadsEveryVersionAndSpelling) {
  const std::string data("\0\1\2", 3);
  for (const char major : {'\1', '\2', '\3'}) {
    EXPECT_EQ(load(write(npy("{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }\n", data, major))),
              (std::vector<double>{0, 1, 2}));
  }
  EXPECT_EQ(load(write(npy("{ \"shape\" :( 3 , ),'descr':'<u1','fortran_order':True}", data))),
            (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(
      io::load_npy(write(npy("{'descr':'>i4','fortran_order':True,'shape':(2,3,4),}", std::string(96, '\0'))))
          .strides(),
      Strides({1, 2, 6}));
  EXPECT_EQ(load(write(npy("{'descr':'>i4','fortran_order':False,'shape':(),}",
                           std::string("\xFF\xFF\xFF\xFE", 4)))),
            (std::vector<double>{-2}));
  // Not aligned for its type, so it is copied.
  const float value = 1.5f;
  EXPECT_EQ(load(write(npy("{'descr':'<f4','fortran_order':False,'shape':()}  ",
                           std::string(reinterpret_cast<const char*>(&value), 4)))),
            (std::vector<double>{1.5}));
}

TEST_F(Npy, RefusesOtherTypesByName) {
  for (const std::string descr :
       {"<u2", "<c8", "|O", "<U5", "<f16", "|V4", "f4", "|f4", "", "<", "<i2", "<f4x"})
    EXPECT_THAT(refusal<DTypeError>(
                    npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (1,), }", "abcd")),
                HasSubstr("descr '" + descr + "' is not supported"));
  EXPECT_THAT(
      refusal<DTypeError>(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "abcd")),
      HasSubstr("structured"));
}

TEST_F(Npy, RefusesMalformedFiles) {
  const std::string good = "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }";
  const std::pair<std::string, std::string> files[] = {
      {"", "empty"},
      {"\x93NUMPX\1\0aaaaaaaa", "not an .npy file"},
      {npy(good, "abc", 4), "version: 4.0 is not supported"},
      {npy(good, "abc", 0), "version: 0.0"},
      {npy(good, "ab"), "2 bytes are not the 3 elements of u8 [3]"},
      {npy(good, "abcd"), "4 bytes are not the 3 elements of u8 [3]"},
      {std::string("\x93NUMPY\1\0\xFF\xFF", 10) + good, "65535 passes the end"},
      {std::string("\x93NUMPY\2\0\xFF\xFF\xFF\xFF", 12) + good, "4294967295 passes the end"},
      {npy("{'descr': '|u1', 'fortran_order': False, }", ""), "'shape' is missing"},
      {npy("{'descr': '|u1', 'shape': (3,), }", "abc"), "'fortran_order' is missing"},
      {npy("{'fortran_order': False, 'shape': (3,), }", "abc"), "'descr' is missing"},
      {npy("{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (3,), }", "abc"), "twice"},
      {npy("{'descr': '|u1', 'extra': False, 'fortran_order': False, 'shape': (3,), }", "abc"),
       "'extra' is unknown"},
      {npy("{'descr': '|u1', 'fortran_order': Maybe, 'shape': (3,), }", "abc"), "True or False expected"},
      {npy("{'descr': '|u1', 'fortran_order': False, 'shape': (-3,), }", "abc"), "an extent"},
      {npy("{'descr': '|u1', 'fortran_order': False, 'shape': (3.0,), }", "abc"), "',' expected"},
      {npy("{'descr': '|u1', 'fortran_order': False, 'shape': (3), }", "abc"), "',' expected"},
      {npy("{'descr': '|u1', 'fortran_order': False, 'shape': (3 3), }", "abc"), "',' expected"},
      {npy("{'descr': '|u1', 'fortran_order': False, 'shape': 3, }", "abc"), "'(' expected"},
      {npy("{'descr': '|u1', 'fortran_order': False, 'shape': (9223372036854775808,), }", ""), "an extent"},
      {npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", ""), "shape"},
      {npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2305843009213693952,), }", ""),
       "0 bytes are not"},
      {npy("{'descr': '<f8', 'fortran_order': True, 'shape': (4611686018427387904, 4, 0), }", ""), "shape"},
      {npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", "a"),
       "more than 8 axes"},
      {npy("{'descr': '|u1', 'fortran_order': False 'shape': (3,), }", "abc"), "',' or '}' expected"},
      {npy("{'descr': '|u1', 'fortran_order': False, 'shape': (3,), } x", "abc"), "text follows"},
      {npy("{'descr': '|u1", "abc"), "a string without end"},
      {npy("{", ""), "a string expected"},
      {npy("", ""), "'{' expected"},
      {npy("{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }", "\2"), "2 is neither 0 nor 1"},
  };
  for (const auto& [content, problem] : files)
    EXPECT_THAT(refusal<FileError>(content), HasSubstr(problem)) << content;
}

TEST_F(Npy, ReplacesNothingButRegularFiles) {
  const Tensor x = zeros(ctx_, {2});
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(message_of<FileError>([&] { io::save_npy(ctx_, path("pipe"), x); }),
              HasSubstr("not a regular file"));
  EXPECT_THAT(message_of<FileError>([&] { io::save_npy(ctx_, path("."), x); }), HasSubstr("is a directory"));
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));
  EXPECT_EQ(files(), 1u);
}

TEST_F(Npy, EveryTruncationIsRefused) {
  for (const char* name : {"npy_f4.npy", "npy_big_endian.npy"})
    expect_prefixes_refused(read_file(test_data(name)), read());
}

TEST_F(Npy, FlippedBytesGiveOnlyErrors) {
  for (const char* name : {"npy_f4.npy", "npy_fortran.npy", "npy_bool.npy", "npy_big_endian.npy"})
    flip_bytes(read_file(test_data(name)), 5'000, read());
}

}  // namespace
}  // namespace burin::test
