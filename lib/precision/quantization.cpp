#include "precision/quantization.h"

namespace lorikeet::precision {

std::string describe(const Quantization& quantization) {
  const std::string book = quantization.book == CodeBook::kNF4 ? "nf4" : "fp4";
  const std::string scales = quantization.nested_block == 0
                                 ? "scales in fp32"
                                 : "scales in blocks of " + std::to_string(quantization.nested_block);
  return book + " in blocks of " + std::to_string(quantization.block) + ", " + scales;
}

}  // namespace lorikeet::precision
