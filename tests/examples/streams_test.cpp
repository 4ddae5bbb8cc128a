// Runs the streams example, and reads what it prints.

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

Outcome run(const std::string& arguments) {
  Outcome result;
  FILE* pipe = popen((std::string(BURIN_STREAMS_PROGRAM) + " " + arguments + " 2>&1").c_str(), "r");
  if (!pipe) return result;
  char text[4096];
  for (std::size_t n; (n = fread(text, 1, sizeof text, pipe)) > 0;) result.output.append(text, n);
  const int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

void expect_lines(const std::string& output, std::initializer_list<const char*> pieces) {
  for (const char* piece : pieces)
    EXPECT_NE(output.find(piece), std::string::npos) << output << "\nlacks: " << piece;
}

TEST(Streams, RunsOnTheCpuAndSaysWhatItDoesNotShow) {
  const Outcome streams = run("cpu");
  EXPECT_EQ(streams.status, 0) << streams.output;
  expect_lines(streams.output,
               {"device: cpu (", "+ 100 on the first = 104", "events on the stream", "need a GPU"});
}

TEST(Streams, RunsOnTheGpu) {
  if (const CudaAvailability cuda = cuda_availability(); cuda.count == 0) GTEST_SKIP() << cuda.reason;
  const Outcome streams = run("cuda");
  EXPECT_EQ(streams.status, 0) << streams.output;
  expect_lines(streams.output, {"device: cuda:0 (", "+ 100 on the first = 104", "WRONG: the call only queues",
                                "results right", "of the time both ran", "at the greatest priority"});
}

TEST(Streams, RefusesWhatItCannotRun) {
  EXPECT_EQ(run("cpu cuda").status, 2);
  const Outcome streams = run("tpu");
  EXPECT_EQ(streams.status, 1);
  expect_lines(streams.output, {"streams: 'tpu' is not a device"});
}

}  // namespace
}  // namespace burin
