// Linked instead of norm_of_gated_cuda.cu where CUDA is absent.
#include "base/error.h"
#include "ops/norm_of_gated/norm_of_gated_cuda.h"

namespace lorikeet::ops {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "[norm_of_gated] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace

void launch_norm_of_gated(CudaElement, const NormOfGatedOnDevice&, void*, void*) { refuse(); }
void launch_norm_of_gated_backward(CudaElement, const NormOfGatedOnDevice&, void*, void*, std::int64_t, void*,
                                   void*) {
  refuse();
}

}  // namespace lorikeet::ops
