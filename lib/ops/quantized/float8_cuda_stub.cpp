// Linked instead of float8_cuda.cu where CUDA is absent.
#include "base/error.h"
#include "ops/quantized/float8_cuda.h"

namespace lorikeet::ops {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "[fp8] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace

void launch_decode_float8(const Float8Matrix&, const QuantizedStack&, std::int64_t, std::int64_t, CudaElement,
                          void*, void*) {
  refuse();
}

void launch_encode_float8(CudaElement, const void*, std::int64_t, std::int64_t, std::int64_t, float,
                          std::uint8_t*, float*, void*) {
  refuse();
}

}  // namespace lorikeet::ops
