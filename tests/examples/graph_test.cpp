// Runs the examples of graphs, and reads what they print.

#include <burin/runtime/device.h>

#include <cstdio>
#include <string>
#include <sys/wait.h>

#include <gtest/gtest.h>

namespace burin {
namespace {

struct Outcome {
  int status = -1;
  std::string output;  // stdout and stderr
};

Outcome run(const std::string& command) {
  Outcome result;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return result;
  char text[4096];
  for (std::size_t n; (n = fread(text, 1, sizeof text, pipe)) > 0;) result.output.append(text, n);
  const int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

const std::string kGraph = std::string(BURIN_GRAPH_PROGRAM) + " ";

void expect_lines(const std::string& output, std::initializer_list<const char*> pieces) {
  for (const char* piece : pieces)
    EXPECT_NE(output.find(piece), std::string::npos) << output << "\nlacks: " << piece;
}

TEST(GraphExample, RunsOnTheCpuAndSaysWhatItDoesNotShow) {
  const Outcome graph = run(kGraph + "cpu");
  EXPECT_EQ(graph.status, 0) << graph.output;
  expect_lines(graph.output, {"device: cpu (", "no graphs here: they need a GPU", "y = x + x, run eagerly:",
                              "A * B + v of three", "   eager  ", "and read back", "need a GPU\n"});
  EXPECT_EQ(graph.output.find("replayed"), std::string::npos) << graph.output;
}

TEST(GraphExample, RunsOnTheGpu) {
  if (const CudaAvailability cuda = cuda_availability(); cuda.count == 0) GTEST_SKIP() << cuda.reason;
  const Outcome graph = run(kGraph + "cuda");
  EXPECT_EQ(graph.status, 0) << graph.output;
  expect_lines(graph.output,
               {"device: cuda:0 (", "y = x + x, replayed from a graph of", "50 + 50 = 100", "and read back",
                "7 * 7 = 49", "7. refused: replay: x must have shape [4], as captured, and has [2, 2]\n",
                "   refused: capture: warm-up run", "it makes the host wait for the device"});
  EXPECT_EQ(graph.output.find("run eagerly"), std::string::npos) << graph.output;
}

TEST(GraphExample, RefusesWhatItCannotRun) {
  EXPECT_EQ(run(kGraph + "cpu cuda").status, 2);
  const Outcome graph = run(kGraph + "tpu");
  EXPECT_EQ(graph.status, 1);
  expect_lines(graph.output, {"graph: 'tpu' is not a device"});
}

#ifdef BURIN_COMPOSED_PROGRAM
TEST(GraphExample, TwoModelsInACallersGraph) {
  const Outcome composed = run(BURIN_COMPOSED_PROGRAM);
  EXPECT_EQ(composed.status, 0) << composed.output;
  const bool has_gpu = cuda_availability().count > 0;
  expect_lines(composed.output, {has_gpu ? "equal to separate runs, bit for bit" : "needs a GPU: "});
}
#endif

}  // namespace
}  // namespace burin
