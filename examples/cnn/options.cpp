#include "options.h"

#include <burin/burin.h>

#include <cstdlib>
#include <map>

#include <CLI/CLI.hpp>

namespace cnn {

Options parse_options(int argc, char** argv) {
  const std::string data = BURIN_CNN_DATA;
  Options options;
  options.weights = data + "/sample_cnn.safetensors";
  options.images = data + "/data/test-images-idx3-ubyte.gz";
  options.labels = data + "/data/test-labels-idx1-ubyte.gz";
  std::string device;

  CLI::App app("Classifies handwritten digits with Burin's sample CNN.", "cnn");
  app.add_option("--device", device, "cpu, cuda or cuda:N (default: a GPU if there is one)")
      ->check([](const std::string& text) {
        try {
          burin::Device::parse(text);
          return std::string();
        } catch (const burin::Error& error) {
          return std::string(error.what());
        }
      });
  app.add_option("--batch", options.batch, "digits a forward pass")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  const std::map<std::string, Precision> precisions = {
      {"f32", Precision::f32}, {"tf32", Precision::tf32}, {"f16", Precision::f16}, {"bf16", Precision::bf16}};
  std::string precision = "f32";
  app.add_option("--precision", precision, "f32, tf32 (CUDA), f16 or bf16")
      ->check(CLI::IsMember({"f32", "tf32", "f16", "bf16"}))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "CPU threads (default: one per core)")
      ->check(CLI::Range(1, 1024));
  std::string graph = "on";
  app.add_option("--graph", graph, "replay forward passes from a CUDA graph (the CPU has none): on or off")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option("--weights", options.weights, "trained weights (safetensors)")->capture_default_str();
  auto* images = app.add_option("--images", options.images,
                                "images of another set, in IDX form, gzip-compressed or not");
  auto* labels = app.add_option("--labels", options.labels, "its labels");
  images->needs(labels);
  labels->needs(images);
  const auto not_empty = [](const std::string& text) { return std::string(text.empty() ? "is empty" : ""); };
  auto* image = app.add_option("--image", options.image,
                               "one PNG or JPEG of a digit, of any size, light on dark or dark on light")
                    ->check(not_empty)
                    ->excludes(images);
  app.add_option("--json", options.json_path, "also write the results of a set to this file")
      ->check(not_empty)
      ->excludes(image);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  options.precision = precisions.at(precision);
  options.graph = graph == "on";
  if (!device.empty()) options.device = burin::Device::parse(device);
  return options;
}

}  // namespace cnn
