#pragma once

#include <cstdint>
#include <string>

#include "card/report.h"
#include "nn/batch.h"
#include "nn/causal_lm.h"
#include "peft/lora.h"

namespace lorikeet::card {

/// A model with adapters on all its projections, and a micro-step of two sequences.
struct MicroStepOf {
  std::string family = "llama";
  int layers = 2;
  std::int64_t hidden = 64, heads = 4, key_value_heads = 2, head_dim = 16, intermediate = 96;
  int tokens = 1100;  ///< as many as kernels for many rows want
  std::int64_t rank = 8;
  std::string keys = {};  ///< more of config.json's, with a comma behind each
};

/// The model on a card in bf16, with adapters. No values are set.
struct CardModel {
  explicit CardModel(const MicroStepOf& what, const peft::LoraConfig& lora = {.rank = 8, .alpha = 24});

  peft::LoraAdapters adapters;
  peft::LoraFactory factory;
  nn::CausalLM model;
};

/// Two sequences of together `tokens` tokens, the first `labels` of which predict a label.
nn::Batch batch_on_card(int tokens, int labels = 5);

/// What the second micro-step of a new model does with the card, in bf16. Checks that it is sound: no hazard,
/// no wait of the host, no upload, a finite loss.
Report micro_step_report(const MicroStepOf& what);

}  // namespace lorikeet::card
