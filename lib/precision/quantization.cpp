#include "precision/quantization.h"

namespace lorikeet::precision {
namespace {

std::string describe_four_bits(const FourBits& how) {
  if (how == kMxfp4) return "mxfp4, a power of two for each 32";
  const std::string scales =
      how.nested_block == 0 ? "scales in fp32" : "scales in blocks of " + std::to_string(how.nested_block);
  return short_name(how) + " in blocks of " + std::to_string(how.block) + ", " + scales;
}

std::string describe_float8(const Float8& how) {
  std::string scales = "block of " + std::to_string(how.block_rows) + " x " + std::to_string(how.block_cols);
  if (how.block_cols == 0) scales = how.block_rows == 0 ? "matrix" : "row";
  return "fp8 (e4m3), a scale for each " + scales;
}

}  // namespace

std::string describe(const Quantization& quantization) {
  if (const auto* four_bits = std::get_if<FourBits>(&quantization)) return describe_four_bits(*four_bits);
  return describe_float8(std::get<Float8>(quantization));
}

std::string short_name(const Quantization& quantization) {
  const auto* four_bits = std::get_if<FourBits>(&quantization);
  if (four_bits == nullptr) return "fp8";
  switch (four_bits->book) {
    case CodeBook::kNF4: return "nf4";
    case CodeBook::kFP4: return "fp4";
    case CodeBook::kE2M1: break;
  }
  return "mxfp4";
}

}  // namespace lorikeet::precision
