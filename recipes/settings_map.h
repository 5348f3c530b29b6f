#pragma once

#include <c10/core/DeviceType.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "config/settings.h"
#include "data/options.h"
#include "data/packing.h"
#include "data/sampler.h"
#include "device/device.h"
#include "nn/model_shape.h"
#include "peft/lora.h"
#include "text/new_tokens.h"
#include "train/adamw.h"
#include "train/loop.h"

// The config's sections as the libraries' own options.
namespace lorikeet::recipes {

peft::LoraConfig lora_config(const config::LoraSettings& settings);
text::NewTokens new_tokens(const config::ModelSettings& settings);
data::DataOptions data_options(const config::Settings& settings);
/// The same for a model that is known: ids given as tokens are below the rows of its embedding.
data::DataOptions data_options(const config::Settings& settings, std::int64_t embedding_rows);
/// Bytes that the rest of a run, `steps` of them with so many trained numbers, may add to its output folder:
/// the checkpoints that it keeps, one that is being written, and the adapter. Where the run is `resumed`, new
/// checkpoints beyond checkpoint.keep_last and a new best/ take the place of those in its folder.
std::uint64_t output_bytes(const config::Settings& settings, std::int64_t steps, std::int64_t numbers,
                           bool resumed);
/// With batch.micro_tokens as it was settled.
data::MicroOptions micro_options(const config::Settings& settings, std::int64_t micro_tokens);
/// Every grade of activation checkpointing, in the order of its cost.
std::vector<config::ActivationCheckpointing> all_grades();
/// Every offload that saves memory of such a device, in the order of its cost; the first is none.
std::vector<config::Offload> offloads_on(at::DeviceType device);
/// Throws Error for settings that a run of so many steps can't have: a warm-up, traces of steps.
void require_steps_fit(const config::Settings& settings, std::int64_t total_steps);
data::SamplerOptions sampler_options(const config::Settings& settings);
train::AdamWOptions adamw_options(const config::Settings& settings);

}  // namespace lorikeet::recipes
