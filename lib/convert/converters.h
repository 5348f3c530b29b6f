#pragma once

#include <cstdint>
#include <initializer_list>

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

/// True for an axolotl config: base_model and datasets.
bool is_axolotl(ForeignConfig& in);
/// Throws Error, at once, for other training than LoRA on text; gathers other problems in `in`.
void convert_axolotl(ForeignConfig& in, OwnConfig& out, const ConvertOptions& options);
/// Its data sets, lengths and batches; the last part of axolotl_data.cpp.
void convert_axolotl_data(ForeignConfig& in, OwnConfig& out, const ConvertOptions& options);

/// Whether axolotl takes a path for a local one: absolute, from the working folder, of one word, or there.
bool is_local_for_axolotl(const std::string& path);
/// "hub:REPO", "hub:REPO@REVISION".
std::string hub_name(const std::string& repository, const std::string& revision);

/// The product of numbers of at least 1; the largest integer where it is larger.
std::int64_t product_of(std::initializer_list<std::int64_t> factors);
/// Sets training.max_steps to a limit that another trainer has beside epochs, with what differs: it ends
/// `what` ("an epoch") early there, and is reached through as many epochs as it takes here.
void set_step_limit(OwnConfig& out, const std::string& key, const std::string& what, std::int64_t steps);
/// Notes that the scales of a base in 4 bits are numbers in fp32 there, codes of 8 bits here.
void note_plain_scales(OwnConfig& out, const std::string& key);

/// "torch.optim.AdamW" -> "AdamW"
std::string last_part(const std::string& component);

}  // namespace lorikeet::convert
