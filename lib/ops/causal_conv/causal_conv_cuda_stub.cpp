// Linked instead of causal_conv_cuda.cu where CUDA is absent.
#include "base/error.h"
#include "ops/causal_conv/causal_conv_cuda.h"

namespace lorikeet::ops {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "[causal_conv] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace

void launch_causal_conv(CudaElement, const CausalConvOnDevice&, const void*, void*, void*) { refuse(); }
void launch_causal_conv_backward(CudaElement, const CausalConvOnDevice&, const void*, void*, std::int64_t,
                                 void*) {
  refuse();
}

}  // namespace lorikeet::ops
