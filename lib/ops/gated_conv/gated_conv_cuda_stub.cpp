// Linked instead of gated_conv_cuda.cu where CUDA is absent.
#include "base/error.h"
#include "ops/gated_conv/gated_conv_cuda.h"

namespace lorikeet::ops {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "[gated_conv] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace

void launch_gated_conv(CudaElement, const CausalConvOnDevice&, const void*, void*, void*) { refuse(); }
void launch_gated_conv_backward(CudaElement, const CausalConvOnDevice&, const void*, void*, void*, void*) {
  refuse();
}

}  // namespace lorikeet::ops
