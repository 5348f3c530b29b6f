// Any bytes as bitsandbytes' quant_state of a tensor: of what is accepted, sizes are positive, their products
// fit 48 bits, and the scales' mean is finite.
#include <cmath>

#include "fuzz.h"
#include "models/quantization_state.h"

using namespace lorikeet;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const char* kind : {"nf4", "fp4"}) {
    const auto state = fuzz::accepted([&] {
      return models::parse_quantization_state(fuzz::view(data, size),
                                              std::string("w.quant_state.bitsandbytes__") + kind);
    });
    if (!state) continue;
    fuzz::require(state->quantization.book ==
                  (kind[0] == 'n' ? precision::CodeBook::kNF4 : precision::CodeBook::kFP4));
    fuzz::require(state->quantization.block > 0 && state->quantization.nested_block >= 0);
    fuzz::require(state->shape.size() == 2 && state->shape[0] > 0 && state->shape[1] > 0);
    fuzz::require(static_cast<double>(state->shape[0]) * static_cast<double>(state->shape[1]) <= 0x1p48);
    fuzz::require(std::isfinite(state->offset));
  }
  return 0;
}
