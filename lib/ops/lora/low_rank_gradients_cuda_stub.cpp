// Linked instead of low_rank_gradients_cuda.cu where CUDA is absent.
#include "base/error.h"
#include "ops/lora/low_rank_gradients_cuda.h"
#include "ops/low_rank_on_device.h"

namespace lorikeet::ops {

// A plan for a GPU asks, which is for a build that has them.
bool has_tensor_core_kernels(int capability) {
  constexpr int kAmpere = 80;
  return capability >= kAmpere;
}

void launch_low_rank_gradients(CudaElement, const LowRankGradients&, float*, void*) {
  throw Error(
      "[low_rank_gradients] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace lorikeet::ops
