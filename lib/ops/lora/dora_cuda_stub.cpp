// Linked instead of dora_cuda.cu where CUDA is absent.
#include "base/error.h"
#include "ops/lora/dora_cuda.h"

namespace lorikeet::ops {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "[dora] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace

void launch_scale_columns(CudaElement, const void*, const float*, const void*, std::int64_t, std::int64_t,
                          void*, void*) {
  refuse();
}

void launch_scale_columns_backward(CudaElement, const void*, const void*, const float*, std::int64_t,
                                   std::int64_t, void*, float*, void*) {
  refuse();
}

}  // namespace lorikeet::ops
