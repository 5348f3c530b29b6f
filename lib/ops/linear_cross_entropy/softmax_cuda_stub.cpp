// Linked instead of softmax_cuda.cu where CUDA is absent.
#include "base/error.h"
#include "ops/linear_cross_entropy/softmax_cuda.h"

namespace lorikeet::ops {

void launch_softmax_nll(CudaElement, const SoftmaxNllOnDevice&, void*) {
  throw Error(
      "[linear_cross_entropy] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure "
      "with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace lorikeet::ops
