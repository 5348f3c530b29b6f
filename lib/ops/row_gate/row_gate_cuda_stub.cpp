// Linked instead of row_gate_cuda.cu where CUDA is absent.
#include "base/error.h"
#include "ops/row_gate/row_gate_cuda.h"

namespace lorikeet::ops {

void launch_row_gate(CudaElement, const RowGateOnDevice&, void*, bool, void*) {
  throw Error(
      "[row_gate] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace lorikeet::ops
