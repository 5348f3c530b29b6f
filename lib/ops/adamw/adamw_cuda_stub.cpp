// Linked instead of adamw_cuda.cu where CUDA is absent.
#include "base/error.h"
#include "ops/adamw/adamw_cuda.h"

namespace lorikeet::ops {

void launch_adamw(CudaElement, const AdamWOnDevice&, const AdamWStep&, void*) {
  throw Error(
      "[adamw_step] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace lorikeet::ops
