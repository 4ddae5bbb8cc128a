#include <burin/burin.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  burin::Context ctx;  // the CPU; burin::Device::cuda() for a GPU
  burin::nn::SampleCnn model;
  model.load_state_dict(ctx, burin::io::Safetensors::open(argv[1]));
  const burin::Tensor digits = burin::to(ctx, burin::io::load_npy(argv[2]), ctx.device());  // [N, 1, 28, 28]
  const burin::Tensor best = burin::argmax(ctx, model(ctx, digits), {.axis = 1});
  for (const std::int64_t digit : burin::to_vector<std::int64_t>(ctx, best))
    std::printf("%d ", static_cast<int>(digit));
  std::printf("\n");
}
