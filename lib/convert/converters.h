#pragma once

#include "convert/convert.h"
#include "convert/foreign_config.h"
#include "convert/own_config.h"

namespace lorikeet::convert {

/// True for the keys of a torchtune recipe: components by _component_, a model and a checkpointer.
bool is_torchtune(ForeignConfig& in);
/// Throws Error, at once, for a recipe other than LoRA on text; gathers other problems in `in`.
void convert_torchtune(ForeignConfig& in, OwnConfig& out, const ConvertOptions& options);
/// Its dataset and tokenizer sections; the last part of torchtune_data.cpp.
void convert_torchtune_data(ForeignConfig& in, OwnConfig& out, const ConvertOptions& options);

/// True for the arguments of litgpt's finetune_lora.
bool is_litgpt(ForeignConfig& in);
void convert_litgpt(ForeignConfig& in, OwnConfig& out);

/// "torch.optim.AdamW" -> "AdamW"
std::string last_part(const std::string& component);

}  // namespace lorikeet::convert
