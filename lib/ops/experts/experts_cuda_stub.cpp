// Linked instead of this folder's .cu files where CUDA is absent.
#include "base/error.h"
#include "ops/experts/expert_rows_cuda.h"
#include "ops/experts/grouped_products_cuda.h"

namespace lorikeet::ops {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "[experts] expected a CPU tensor, got a CUDA tensor in a build without CUDA; configure with "
      "-DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace

void launch_spread_rows(CudaElement, const ExpertRowsOnDevice&, const void*, void*, void*) { refuse(); }
void launch_combine_rows(CudaElement, const ExpertRowsOnDevice&, const void*, void*, void*) { refuse(); }
void launch_row_products(CudaElement, std::int64_t, std::int64_t, const void*, const void*, float*, void*) {
  refuse();
}
void launch_grouped_product(CudaElement, const ExpertsOnDevice&, const GroupedProduct&, void*) { refuse(); }
void launch_grouped_sums(CudaElement, const ExpertsOnDevice&, const GroupedSums&, void*) { refuse(); }

}  // namespace lorikeet::ops
