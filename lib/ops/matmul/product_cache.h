#pragma once

#include <cstdint>

namespace lorikeet::ops {

/// What libtorch keeps of 16-bit products that it does natively on a CPU (matmul.h says where): for each
/// combination of shapes a plan of the product (ideep's cache) and its machine code (oneDNN's). Both keep
/// 1,024 of them, in all about a gigabyte, where rows of many lengths come by; a Llama's micro-batch has 46,
/// of them 18 of the last layer's label rows, or a few more.
struct ProductCacheRules {
  std::int64_t products = 64;                             ///< kept after bound_product_caches
  std::int64_t bytes_of_product = std::int64_t{3} << 18;  ///< measured
};
inline constexpr ProductCacheRules kProductCacheRules;

/// Limits both caches to kProductCacheRules, through the environment variables LRU_CACHE_CAPACITY and
/// ONEDNN_PRIMITIVE_CACHE_CAPACITY (DNNL_PRIMITIVE_CACHE_CAPACITY), which the libraries read at the first
/// product; a variable that is set already stays. Results are the same with any limit. To be called before
/// the first product and while there is one thread.
void bound_product_caches();

}  // namespace lorikeet::ops
