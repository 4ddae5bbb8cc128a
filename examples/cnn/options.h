#pragma once

#include <burin/runtime/device.h>

#include <cstdint>
#include <optional>
#include <string>

namespace cnn {

enum class Precision { f32, tf32, f16, bf16 };

struct Options {
  std::optional<burin::Device> device;  // the first GPU if there is one, else the CPU
  std::int64_t batch = 10;
  Precision precision = Precision::f32;
  int threads = 0;    // 0: one per core
  bool graph = true;  // replay passes from a graph where the device can
  std::string weights;
  std::string images;  // IDX files, gzip-compressed or not
  std::string labels;
  std::string image;      // one PNG or JPEG instead of a set
  std::string json_path;  // empty: none
};

/// Reads the command line. Prints usage and leaves the process with 0 (--help) or 2 (wrong usage).
Options parse_options(int argc, char** argv);

}  // namespace cnn
