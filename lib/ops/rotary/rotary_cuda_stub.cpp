// Linked instead of rotary_cuda.cu and rotary_terms_cuda.cu where CUDA is absent.
#include "base/error.h"
#include "ops/rotary/rotary_cuda.h"
#include "ops/rotary/rotary_terms_cuda.h"

namespace lorikeet::ops {

namespace {

[[noreturn]] void refuse() {
  throw Error(
      "[rotate] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace

void launch_rotary(CudaElement, void*, const float*, const float*, std::int64_t, const HeadLayout&,
                   std::int64_t, bool, void*) {
  refuse();
}
void launch_rotary(CudaElement, void*, const float*, const float*, std::int64_t, const HeadLayout&,
                   const HeadTerms&, void*) {
  refuse();
}
void launch_rotary_backward(CudaElement, const HeadsOnDevice&, const float*, const float*, std::int64_t,
                            const HeadLayout&, std::int64_t, void*, void*) {
  refuse();
}

}  // namespace lorikeet::ops
