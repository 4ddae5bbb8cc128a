#include <burin/burin.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  burin::Context ctx;  // the CPU; burin::Device::cuda() for a GPU
  burin::nn::SampleCnn model;
  model.load_state_dict(ctx, burin::io::Safetensors::open(argv[1]));
  const burin::Tensor digits = burin::uniform(ctx, {10, 1, 28, 28}, burin::Philox{.seed = 1});
  const burin::Tensor best = burin::argmax(ctx, model(ctx, digits), {.axis = 1});
  for (const std::int64_t digit : burin::to_vector<std::int64_t>(ctx, best))
    std::printf("%d ", static_cast<int>(digit));
  std::printf("\n");
}
