// Linked instead of gated_delta_cuda.cu, gated_delta_reverse_cuda.cu and gated_delta_gradients_cuda.cu where
// CUDA is absent.
#include "base/error.h"
#include "ops/gated_delta/gated_delta_cuda.h"

namespace lorikeet::ops {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "[gated_delta] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace

void launch_delta_chunks(CudaElement, const DeltaSizes&, const DeltaRows&, const DeltaChunks&, void*) {
  refuse();
}
void launch_delta_forward(CudaElement, const DeltaSizes&, const DeltaRows&, const DeltaChunks&, const float*,
                          float*, void*, void*) {
  refuse();
}
void launch_delta_states(CudaElement, const DeltaSizes&, const DeltaRows&, const DeltaChunks&,
                         const DeltaStates&, void*) {
  refuse();
}
void launch_delta_reverse(CudaElement, const DeltaSizes&, const DeltaRows&, const DeltaChunks&, const void*,
                          const DeltaStateGradients&, void*, void*) {
  refuse();
}
void launch_delta_gradients(CudaElement, const DeltaSizes&, const DeltaRows&, const DeltaChunks&,
                            const DeltaStates&, const DeltaStateGradients&, const void*, float*, void*, void*,
                            void*) {
  refuse();
}

}  // namespace lorikeet::ops
