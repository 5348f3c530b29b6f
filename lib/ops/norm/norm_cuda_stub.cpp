// Linked instead of norm_cuda.cu and norm_terms_cuda.cu where CUDA is absent.
#include "base/error.h"
#include "ops/norm/norm_cuda.h"
#include "ops/norm/norm_terms_cuda.h"

namespace lorikeet::ops {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "[norm] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace

void launch_norm_forward(CudaElement, const NormRows&, const NormForwardOnDevice&, void*) { refuse(); }
void launch_norm_forward(CudaElement, const NormRows&, const NormForwardOnDevice&, const LowRankOnDevice&,
                         void*) {
  refuse();
}
void launch_norm_backward(CudaElement, const NormRows&, const NormBackwardOnDevice&, void*) { refuse(); }

}  // namespace lorikeet::ops
