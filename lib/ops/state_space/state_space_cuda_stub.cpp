// Linked instead of state_space_cuda.cu, state_space_reverse_cuda.cu and state_space_gradients_cuda.cu where
// CUDA is absent.
#include "base/error.h"
#include "ops/state_space/state_space_cuda.h"

namespace lorikeet::ops {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "[state_space] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace

void launch_state_space_chunks(CudaElement, const StateSpaceSizes&, const StateSpaceRows&,
                               const StateSpaceChunks&, void*) {
  refuse();
}
void launch_state_space_forward(CudaElement, const StateSpaceSizes&, const StateSpaceRows&,
                                const StateSpaceChunks&, const float*, float*, void*, void*) {
  refuse();
}
void launch_state_space_states(CudaElement, const StateSpaceSizes&, const StateSpaceRows&,
                               const StateSpaceChunks&, const StateSpaceStates&, void*) {
  refuse();
}
void launch_state_space_reverse(CudaElement, const StateSpaceSizes&, const StateSpaceRows&,
                                const StateSpaceChunks&, const void*, const StateSpaceStates&, void*, void*) {
  refuse();
}
void launch_state_space_gradients(CudaElement, const StateSpaceSizes&, const StateSpaceRows&,
                                  const StateSpaceChunks&, const void*, const StateSpaceStates&, void*,
                                  std::int64_t, void*) {
  refuse();
}
void launch_state_space_sums(CudaElement, const StateSpaceSizes&, const float*, void*, void*) { refuse(); }

}  // namespace lorikeet::ops
