#pragma once

#include <cstdint>
#include <string>

#include "card/report.h"

namespace lorikeet::card {

/// A model with adapters of rank 8 on all its projections, and a micro-step of two sequences.
struct MicroStepOf {
  std::string family = "llama";
  int layers = 2;
  std::int64_t hidden = 64, heads = 4, key_value_heads = 2, head_dim = 16, intermediate = 96;
  int tokens = 1100;  ///< as many as kernels for many rows want
};

/// What the second micro-step of a new model does with the card, in bf16. Checks that it is sound: no hazard,
/// no wait of the host, no upload, a finite loss.
Report micro_step_report(const MicroStepOf& what);

}  // namespace lorikeet::card
