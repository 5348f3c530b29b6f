// Linked instead of qk_norm_cuda.cu where CUDA is absent.
#include "base/error.h"
#include "ops/qk_norm/qk_norm_cuda.h"

namespace lorikeet::ops {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "[norm_and_rotate] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace

void launch_norm_and_rotate(CudaElement, const QkNormOnDevice&, const void*, void*, float*, float*, void*) {
  refuse();
}
void launch_norm_and_rotate_backward(CudaElement, const QkNormOnDevice&, const HeadsOnDevice&, const void*,
                                     const float*, const float*, void*, void*) {
  refuse();
}

}  // namespace lorikeet::ops
