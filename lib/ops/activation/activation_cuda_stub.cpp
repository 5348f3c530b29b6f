// Linked instead of activation_cuda.cu and gated_terms_cuda.cu where CUDA is absent.
#include "base/error.h"
#include "ops/activation/activation_cuda.h"
#include "ops/activation/gated_terms_cuda.h"

namespace lorikeet::ops {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "[activation] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace

void launch_gated_forward(CudaElement, Activation, const void*, std::int64_t, std::int64_t, void*, void*) {
  refuse();
}
void launch_gated_backward(CudaElement, Activation, const void*, std::int64_t, std::int64_t, void*, void*,
                           void*) {
  refuse();
}
void launch_activation_forward(CudaElement, Activation, const void*, std::int64_t, void*, void*) { refuse(); }
void launch_activation_backward(CudaElement, Activation, const void*, std::int64_t, void*, void*, void*) {
  refuse();
}

void launch_gated_forward(CudaElement, Activation, const void*, const GatedTerms&, std::int64_t, std::int64_t,
                          void*, void*) {
  refuse();
}
void launch_gated_backward(CudaElement, Activation, const void*, const LowRankOnDevice&, const GatedTerms&,
                           std::int64_t, std::int64_t, void*, void*, void*) {
  refuse();
}
void launch_gated_backward_and_sum(CudaElement, Activation, const void*, const LowRankOnDevice&,
                                   const GatedTerms&, std::int64_t, std::int64_t, void*, float*, float*,
                                   void*) {
  refuse();
}

}  // namespace lorikeet::ops
