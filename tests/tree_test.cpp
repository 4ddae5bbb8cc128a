// The shape of the source tree: which part may include which, what public headers and the README show, where
// kernels are launched.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace burin::test {
namespace {

namespace fs = std::filesystem;

/// The part of the tree that a path inside it belongs to.
std::string part_of(const std::string& path) {
  if (path.starts_with("io/onnx")) return "io/onnx";
  return path.substr(0, path.find('/'));
}

/// runtime <- ops <- nn <- graph <- io/onnx; the rest of io needs only runtime.
const std::map<std::string, std::set<std::string>>& allowed() {
  static const std::map<std::string, std::set<std::string>> parts = {
      {"runtime", {"runtime"}},         {"ops", {"runtime", "ops"}},
      {"nn", {"runtime", "ops", "nn"}}, {"graph", {"runtime", "ops", "nn", "graph"}},
      {"io", {"runtime", "io"}},        {"io/onnx", {"runtime", "ops", "nn", "graph", "io", "io/onnx"}},
  };
  return parts;
}

/// Why a file of the library must not have this line; empty if it may.
std::string include_problem(const std::string& file, const std::string& line) {
  if (!line.starts_with("#include")) return {};
  if (line.find('"') != std::string::npos) return "is not spelt <burin/...>";
  constexpr std::string_view kPrefix = "<burin/";
  const auto begin = line.find(kPrefix);
  if (begin == std::string::npos) return {};
  const std::string target = line.substr(begin + kPrefix.size(), line.find('>') - begin - kPrefix.size());
  if (allowed().at(part_of(file)).contains(part_of(target))) return {};
  return "points from " + part_of(file) + " to " + part_of(target);
}

/// Why a public header must not have this line; empty if it may. Headers of the C++ library have neither
/// folder nor extension.
std::string public_include_problem(const std::string& line) {
  if (!line.starts_with("#include") || line.find("<burin/") != std::string::npos) return {};
  return line.find_first_of("./") == std::string::npos ? std::string() : "shows a third-party header";
}

std::vector<std::string> lines_of(const fs::path& file) {
  std::vector<std::string> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// As the install rules tell them: a private header says so in its second line.
bool is_public_header(const fs::path& file) {
  const std::vector<std::string> lines = lines_of(file);
  return file.extension() == ".h" && !(lines.size() > 1 && lines[1].starts_with("// Private"));
}

const fs::path kSource = BURIN_SOURCE_DIR;

/// Calls body(path relative to the tree, lines) for each source file of these folders.
int for_each_source(const std::vector<std::string>& folders,
                    const std::function<void(const std::string&, const std::vector<std::string>&)>& body) {
  static const std::set<std::string> kExtensions = {".h", ".cpp", ".cu", ".cuh"};
  int files = 0;
  for (const std::string& folder : folders) {
    if (!fs::exists(kSource / folder)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kSource / folder)) {
      if (!entry.is_regular_file() || !kExtensions.contains(entry.path().extension())) continue;
      body(fs::relative(entry.path(), kSource).generic_string(), lines_of(entry.path()));
      ++files;
    }
  }
  return files;
}

const std::vector<std::string> kLibrary = {"runtime", "ops", "nn", "graph", "io"};

TEST(Tree, RulesRefuseWhatTheyShould) {
  EXPECT_EQ(include_problem("runtime/copy.cpp", "#include <burin/ops/binary/binary.h>"),
            "points from runtime to ops");
  EXPECT_EQ(include_problem("ops/conv2d/conv2d.cpp", "#include <burin/nn/module.h>"),
            "points from ops to nn");
  EXPECT_EQ(include_problem("io/npy.cpp", "#include <burin/ops/cast/cast.h>"), "points from io to ops");
  EXPECT_EQ(include_problem("nn/module.h", "#include <burin/burin.h>"), "points from nn to burin.h");
  EXPECT_EQ(include_problem("io/npy.cpp", "#include <burin/io/onnx/onnx.h>"), "points from io to io/onnx");
  EXPECT_EQ(include_problem("nn/module.cpp", "#include \"module.h\""), "is not spelt <burin/...>");
  EXPECT_EQ(include_problem("io/onnx/onnx.cpp", "#include <burin/graph/graph.h>"), "");
  EXPECT_EQ(include_problem("ops/cast/cast.cpp", "#include <burin/runtime/copy.h>"), "");
  EXPECT_EQ(include_problem("ops/cast/cast.cpp", "#include <vector>"), "");
  EXPECT_EQ(public_include_problem("#include <fmt/format.h>"), "shows a third-party header");
  EXPECT_EQ(public_include_problem("#include <cudnn.h>"), "shows a third-party header");
  EXPECT_EQ(public_include_problem("#include <Eigen/Core>"), "shows a third-party header");
  EXPECT_EQ(public_include_problem("#include <cstdint>"), "");
}

TEST(Tree, IncludesPointOneWay) {
  const int files =
      for_each_source(kLibrary, [](const std::string& file, const std::vector<std::string>& lines) {
        for (const std::string& line : lines)
          if (const std::string problem = include_problem(file, line); !problem.empty())
            ADD_FAILURE() << file << ": " << line << " " << problem;
      });
  EXPECT_GT(files, 50) << "is " << kSource << " the source tree?";
}

TEST(Tree, PublicHeadersShowNoThirdParty) {
  int headers = 0;
  for_each_source(kLibrary, [&](const std::string& file, const std::vector<std::string>& lines) {
    if (!is_public_header(kSource / file)) return;
    ++headers;
    for (const std::string& line : lines) {
      if (const std::string problem = public_include_problem(line); !problem.empty())
        ADD_FAILURE() << file << ": " << line << " " << problem;
      const auto include = line.find("<burin/");
      if (!line.starts_with("#include") || include == std::string::npos) continue;
      const std::string target = line.substr(include + 7, line.find('>') - include - 7);
      EXPECT_TRUE(is_public_header(kSource / target))
          << file << ", which is public, includes " << target << ", which is not";
    }
  });
  EXPECT_GT(headers, 20);
}

TEST(Tree, EveryOperatorHasATest) {
  int operators = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(kSource / "ops")) {
    const std::string name = entry.path().filename().string();
    const fs::path header = entry.path() / (name + ".h");
    if (!fs::exists(header) || !is_public_header(header)) continue;
    ++operators;
    EXPECT_TRUE(fs::exists(kSource / "tests/ops" / (name + "_test.cpp"))) << "ops/" << name << " has no test";
  }
  EXPECT_GT(operators, 5);
}

TEST(Tree, ReadmeShowsTheWholeExample) {
  const auto text_of = [](const fs::path& file) {
    std::string text;
    for (const std::string& line : lines_of(file)) text += line + "\n";
    return text;
  };
  const std::string program = text_of(kSource / "examples/embed/main.cpp");
  EXPECT_NE(text_of(kSource / "README.md").find("```cpp\n" + program + "```\n"), std::string::npos);
}

TEST(Tree, LinksOfThePagesLeadSomewhere) {
  std::vector<fs::path> pages = {kSource / "README.md"};
  for (const fs::directory_entry& entry : fs::directory_iterator(kSource / "docs"))
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  int links = 0;
  for (const fs::path& page : pages)
    for (const std::string& line : lines_of(page))
      for (std::size_t at = line.find("]("); at != std::string::npos; at = line.find("](", at + 1)) {
        const std::string target = line.substr(at + 2, line.find(')', at) - at - 2);
        if (target.starts_with("http")) continue;
        ++links;
        EXPECT_TRUE(fs::exists(page.parent_path() / target)) << page << " links " << target;
      }
  EXPECT_GT(links, 5);
}

TEST(Tree, KernelsAreLaunchedInOnePlace) {
  const std::string launch(3, '<');
  std::vector<std::string> folders = kLibrary;
  for (const char* folder : {"tools", "examples", "bench", "tests"}) folders.emplace_back(folder);
  for_each_source(folders, [&](const std::string& file, const std::vector<std::string>& lines) {
    if (file == "runtime/cuda/launch.cuh") return;
    for (const std::string& line : lines)
      EXPECT_EQ(line.find(launch), std::string::npos) << file << ": " << line;
  });
}

}  // namespace
}  // namespace burin::test
