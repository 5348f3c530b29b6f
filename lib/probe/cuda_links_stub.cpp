// Linked instead of cuda_links.cpp where CUDA is absent.
#include "base/error.h"
#include "probe/cuda_links.h"

namespace lorikeet::probe {

std::unique_ptr<LinkTimer> make_cuda_link_timer(const std::vector<int>&, const AllReduceRate&) {
  throw Error(
      "[topology] measuring links between GPUs needs a build with CUDA; configure with -DLORIKEET_CUDA=ON",
      ErrorKind::kEnvironment);
}

}  // namespace lorikeet::probe
