// Runs the digit classifier as a person would, and reads what it prints.

#include <burin/runtime/device.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/wait.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <zlib.h>

namespace burin {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int status = -1;
  std::string output;  // stdout and stderr
};

Outcome run(const std::string& arguments) {
  Outcome result;
  FILE* pipe = popen((std::string(BURIN_CNN_PROGRAM) + " " + arguments + " 2>&1").c_str(), "r");
  if (!pipe) return result;
  char text[4096];
  for (std::size_t n; (n = fread(text, 1, sizeof text, pipe)) > 0;) result.output.append(text, n);
  const int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

std::string data(const std::string& file) { return std::string(BURIN_TEST_DATA) + "/" + file; }

class Cnn : public ::testing::Test {
 protected:
  fs::path file(const std::string& name, const std::string& contents) {
    const fs::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << contents;
    return path;
  }
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_ =
      fs::path(::testing::TempDir()) /
      (std::string("cnn_test_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(Cnn, ClassifiesTheTestDigits) {
  const fs::path json = folder_ / "results.json";
  const Outcome cnn = run("--device cpu --json " + json.string());
  ASSERT_EQ(cnn.status, 0) << cnn.output;
  EXPECT_NE(cnn.output.find("of 2000)"), std::string::npos) << cnn.output;
  EXPECT_NE(cnn.output.find("device: cpu"), std::string::npos);
  EXPECT_NE(cnn.output.find("p99"), std::string::npos);
  const auto results = nlohmann::json::parse(std::ifstream(json));
  EXPECT_EQ(results["count"], 2000);
  EXPECT_GE(results["accuracy_percent"], 98.5);
  std::int64_t counted = 0;
  for (const auto& row : results["confusion"])
    for (const auto& cell : row) counted += cell.get<std::int64_t>();
  EXPECT_EQ(counted, 2000);
}

TEST_F(Cnn, IsAsRightInEveryBatchSizeAndPrecision) {
  for (const std::string options :
       {"--batch 1", "--batch 7", "--batch 5000", "--precision f16", "--precision bf16", "--threads 1"}) {
    const fs::path json = folder_ / "results.json";
    const Outcome cnn = run("--device cpu " + options + " --json " + json.string());
    ASSERT_EQ(cnn.status, 0) << cnn.output;
    EXPECT_GE(nlohmann::json::parse(std::ifstream(json))["right"], 1980) << options;
  }
}

TEST_F(Cnn, TakesGraphOnTheCpuAndRunsEagerly) {
  nlohmann::json results[2];
  const std::string options[] = {"--graph on", "--graph off"};
  for (int i = 0; i < 2; ++i) {
    const fs::path json = folder_ / "results.json";
    const Outcome cnn = run("--device cpu --batch 7 " + options[i] + " --json " + json.string());
    ASSERT_EQ(cnn.status, 0) << cnn.output;
    EXPECT_EQ(cnn.output.find("replayed"), std::string::npos) << cnn.output;
    results[i] = nlohmann::json::parse(std::ifstream(json));
    EXPECT_EQ(results[i]["graph"], false);
    EXPECT_FALSE(results[i].contains("graph_latency_ms"));
  }
  EXPECT_EQ(results[0]["confusion"], results[1]["confusion"]);
}

TEST_F(Cnn, ReplaysOnTheGpuWithTheLastBatchPadded) {
  if (const CudaAvailability cuda = cuda_availability(); cuda.count == 0) GTEST_SKIP() << cuda.reason;
  for (const std::string precision : {"f32", "tf32", "f16", "bf16"}) {
    const fs::path json = folder_ / "results.json";
    const std::string options =
        "--device cuda --batch 7 --precision " + precision + " --json " + json.string();
    const Outcome replayed = run(options);
    ASSERT_EQ(replayed.status, 0) << replayed.output;
    EXPECT_NE(replayed.output.find("times as fast"), std::string::npos) << replayed.output;
    const auto graph = nlohmann::json::parse(std::ifstream(json));
    EXPECT_EQ(graph["graph"], true);
    EXPECT_GT(graph["eager_latency_ms"]["median"], 0);
    EXPECT_GT(graph["graph_latency_ms"]["median"], 0);
    const Outcome off = run(options + " --graph off");
    ASSERT_EQ(off.status, 0) << off.output;
    const auto eager = nlohmann::json::parse(std::ifstream(json));
    EXPECT_EQ(eager["graph"], false);
    EXPECT_EQ(eager["confusion"], graph["confusion"]) << precision;
  }
}

TEST_F(Cnn, ReadsPicturesOfAnyKind) {
  int pictures = 0;
  for (const auto& entry : fs::directory_iterator(data("images"))) {
    const std::string label = entry.path().filename().string().substr(5, 1);  // "digit7_..."
    const Outcome cnn = run("--device cpu --image " + entry.path().string());
    EXPECT_EQ(cnn.status, 0) << cnn.output;
    EXPECT_TRUE(cnn.output.ends_with(": " + label + "\n")) << entry.path() << "\n" << cnn.output;
    ++pictures;
  }
  EXPECT_GE(pictures, 20);
}

/// A gray picture of one row, dark in the middle.
std::string long_png(std::uint32_t width) {
  const auto big_endian = [](std::uint32_t value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
    return bytes;
  };
  const auto chunk = [&](const std::string& text) {  // kind and body
    const auto crc = crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size()));
    return big_endian(static_cast<std::uint32_t>(text.size() - 4)) + text +
           big_endian(static_cast<std::uint32_t>(crc));
  };
  std::string row(1 + width, '\xff');
  row[0] = 0;  // no filter
  std::fill_n(row.begin() + width / 2, width / 10, '\0');
  uLongf packed_size = compressBound(static_cast<uLong>(row.size()));
  std::string packed(packed_size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &packed_size, reinterpret_cast<const Bytef*>(row.data()),
           static_cast<uLong>(row.size()));
  packed.resize(packed_size);
  return "\x89PNG\r\n\x1a\n" +
         chunk("IHDR" + big_endian(width) + big_endian(1) + std::string("\x08\0\0\0\0", 5)) +
         chunk("IDAT" + packed) + chunk("IEND");
}

TEST_F(Cnn, ReadsPicturesOfOneRow) {
  const Outcome cnn = run("--device cpu --image " + file("row.png", long_png(1'000'000)).string());
  EXPECT_EQ(cnn.status, 0) << cnn.output;
}

TEST_F(Cnn, SaysWhenItsOutputIsLost) {
  const Outcome cnn =
      run("--device cpu --image " + data("images/digit7_rgb_dark_on_light.png") + " > /dev/full");
  EXPECT_EQ(cnn.status, 1);
}

TEST_F(Cnn, SaysWhyThereIsNoGpu) {
  const CudaAvailability cuda = cuda_availability();
  if (cuda.count > 0) GTEST_SKIP() << "this machine has a GPU";
  const Outcome asked = run("--device cuda");
  EXPECT_EQ(asked.status, 1);
  EXPECT_NE(asked.output.find(cuda.reason), std::string::npos) << asked.output;
  const Outcome unasked = run("--image " + data("images/digit7_rgb_dark_on_light.png"));
  EXPECT_EQ(unasked.status, 0);
  EXPECT_NE(unasked.output.find("no GPU: " + cuda.reason), std::string::npos) << unasked.output;
}

TEST_F(Cnn, WrongUsageExitsWith2) {
  for (const std::string arguments :
       {"--nonsense", "--device tpu", "--batch 0", "--batch many", "--precision f8", "--graph maybe",
        "--images only.gz", "stray", "--threads -1", "--image ''", "--json ''",
        "--image a.png --json b.json"}) {
    const Outcome cnn = run(arguments);
    EXPECT_EQ(cnn.status, 2) << arguments << "\n" << cnn.output;
  }
  EXPECT_EQ(run("--help").status, 0);
}

TEST_F(Cnn, BadInputExitsWith1AndNamesTheFile) {
  const std::string labels = std::string(BURIN_CNN_DATA) + "/data/test-labels-idx1-ubyte.gz";
  const std::string images = std::string(BURIN_CNN_DATA) + "/data/test-images-idx3-ubyte.gz";
  const std::string bad = file("bad", "not what it should be").string();
  const std::string gone = (folder_ / "gone").string();
  for (const std::string& arguments :
       {"--image " + bad, "--image " + gone, "--weights " + bad, "--weights " + gone,
        "--images " + bad + " --labels " + labels, "--images " + gone + " --labels " + labels,
        "--images " + images + " --labels " + images, "--images " + labels + " --labels " + labels}) {
    const Outcome cnn = run("--device cpu " + arguments);
    EXPECT_EQ(cnn.status, 1) << arguments << "\n" << cnn.output;
    EXPECT_NE(cnn.output.find("cnn: /"), std::string::npos) << cnn.output;
  }
  const Outcome tf32 = run("--device cpu --precision tf32");
  EXPECT_EQ(tf32.status, 1) << tf32.output;
}

}  // namespace
}  // namespace burin
