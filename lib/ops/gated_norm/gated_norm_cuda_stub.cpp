// Linked instead of gated_norm_cuda.cu where CUDA is absent.
#include "base/error.h"
#include "ops/gated_norm/gated_norm_cuda.h"

namespace lorikeet::ops {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "[gated_norm] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace

void launch_gated_norm(CudaElement, const GatedNormOnDevice&, void*, void*) { refuse(); }
void launch_gated_norm_backward(CudaElement, const GatedNormOnDevice&, void*, void*, std::int64_t, void*,
                                void*) {
  refuse();
}

}  // namespace lorikeet::ops
