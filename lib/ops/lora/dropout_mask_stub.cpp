// Linked instead of dropout_mask.cu where CUDA is absent.
#include "base/error.h"
#include "ops/lora/dropout_mask.h"

namespace lorikeet::ops {

void launch_dropout(CudaElement, const void*, void*, std::int64_t, std::int64_t, const std::int64_t*,
                    const std::int64_t*, const DropoutKey&, void*) {
  throw Error(
      "[dropout] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace lorikeet::ops
