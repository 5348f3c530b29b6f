// Linked instead of sigmoid_gate_cuda.cu where CUDA is absent.
#include "base/error.h"
#include "ops/sigmoid_gate/sigmoid_gate_cuda.h"

namespace lorikeet::ops {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "[sigmoid_gate] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace

void launch_sigmoid_gate(CudaElement, const SigmoidGateOnDevice&, void*, void*) { refuse(); }
void launch_sigmoid_gate_backward(CudaElement, const SigmoidGateOnDevice&, void*, void*, std::int64_t, void*,
                                  void*) {
  refuse();
}

}  // namespace lorikeet::ops
