#include "ops/matmul/product_cache.h"

#include <cstdlib>
#include <string>

namespace lorikeet::ops {

void bound_product_caches() {
  const std::string most = std::to_string(kProductCacheRules.products);
  setenv("LRU_CACHE_CAPACITY", most.c_str(), /*overwrite=*/0);
  // oneDNN looks at its newer name first, which would hide a user's older one.
  if (std::getenv("DNNL_PRIMITIVE_CACHE_CAPACITY") == nullptr)
    setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", most.c_str(), /*overwrite=*/0);
}

}  // namespace lorikeet::ops
