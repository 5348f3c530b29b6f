// Linked instead of sinks_cuda.cu where CUDA is absent.
#include "base/error.h"
#include "ops/attention/sinks_cuda.h"

namespace lorikeet::ops {

void launch_apply_sinks(CudaElement, const SinksOnDevice&, void*, void*) {
  throw Error(
      "[attention] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace lorikeet::ops
