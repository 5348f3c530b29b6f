// Linked instead of latent_heads_cuda.cu where CUDA is absent.
#include "base/error.h"
#include "ops/latent_heads/latent_heads_cuda.h"

namespace lorikeet::ops {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "[latent_heads] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace

void launch_latent_heads(CudaElement, const LatentPartsOnDevice<const void*>&, const float*, const float*,
                         std::int64_t, const LatentLayout&, void*, void*) {
  refuse();
}
void launch_latent_heads_backward(CudaElement, const HeadsOnDevice&, const float*, const float*, std::int64_t,
                                  const LatentLayout&, const LatentPartsOnDevice<void*>&, void*) {
  refuse();
}

}  // namespace lorikeet::ops
