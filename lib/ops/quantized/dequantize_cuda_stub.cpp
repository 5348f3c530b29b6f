// Linked instead of dequantize_cuda.cu where CUDA is absent.
#include "base/error.h"
#include "ops/quantized/dequantize_cuda.h"

namespace lorikeet::ops {

void launch_dequantize(const QuantizedParts&, const QuantizedStack&, std::int64_t, std::int64_t, CudaElement,
                       void*, void*) {
  throw Error(
      "[dequantize] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace lorikeet::ops
