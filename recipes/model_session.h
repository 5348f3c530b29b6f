#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "base/json.h"
#include "config/settings.h"
#include "device/device.h"
#include "io/checkpoint.h"
#include "models/fingerprint.h"
#include "nn/architecture.h"
#include "nn/causal_lm.h"
#include "peft/lora.h"
#include "precision/policy.h"
#include "text/new_tokens.h"
#include "text/tokenizer.h"

namespace lorikeet::recipes {

/// The precision policy of a run on this device, which libraries are told of. Throws Error where the device
/// has no fast arithmetic of its kinds.
precision::Policy choose_policy(const config::PrecisionSettings& settings, const device::Device& device);

/// Throws Error where the checkpoint `model` says that its linear weights are quantised and the settings name
/// another storage for them.
void require_storage_fits(const config::PrecisionSettings& settings, const std::filesystem::path& model);

/// libtorch's name for a device.
at::Device torch_device(const device::Device& device);

/// A base checkpoint, with adapters or without: what training, evaluation, generation and merging begin with.
struct ModelSession {
  precision::Policy policy;
  device::Device device;
  Json config;  ///< config.json
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::vector<text::AddedToken> added_tokens;    ///< that the checkpoint's tokenizer doesn't have
  std::unique_ptr<peft::LoraAdapters> adapters;  ///< null without adapters
  std::unique_ptr<nn::CausalLM> model;
  nn::Architecture architecture;
  std::string checkpoint_fingerprint;        ///< io::Checkpoint::fingerprint: by samples
  std::optional<io::Checkpoint> checkpoint;  ///< mapped, until the weights are loaded

  at::Device torch_device() const { return recipes::torch_device(device); }
  /// Rows of the embedding: the checkpoint's, or more where tokens were added.
  std::int64_t embedding_rows() const;
};

/// Opens the checkpoint folder `path`: its config.json and tokenizer are read and the model's blocks made,
/// with adapters of these settings where `lora` is given; of the weights only the headers are looked at
/// (and the tables of a tied head, models/loading.h), and nothing is allocated. `tokens` are added to the
/// tokenizer; where some are new, the embedding and the head get rows for them and are trained whole. Throws
/// Error for whatever doesn't fit: folder, config.json, tensors, tokenizer, targets.
ModelSession open_model(const std::filesystem::path& path, const precision::Policy& policy,
                        const device::Device& device, const std::optional<peft::LoraConfig>& lora,
                        std::uint64_t seed, const text::NewTokens& tokens = {});

/// The same from config.json and tokenizer alone: the folder needs no weights, and none of what there are is
/// looked at.
ModelSession open_shapes(const std::filesystem::path& path, const precision::Policy& policy,
                         const device::Device& device, const std::optional<peft::LoraConfig>& lora,
                         std::uint64_t seed, const text::NewTokens& tokens = {});

/// The same from a config.json alone, without a tokenizer; `where` names it in errors.
ModelSession open_config(Json config, const std::string& where, const precision::Policy& policy,
                         const device::Device& device, const std::optional<peft::LoraConfig>& lora,
                         std::uint64_t seed);

/// Reads the weights, or this process's part of them, to the session's device, and allocates the adapters,
/// which are not initialised. Lets the mapped checkpoint go.
void load_weights(ModelSession& session, const nn::WeightShard& shard = {});
/// The same, with the digests of what this process read: see models::load_and_digest_weights.
/// `on_host`: matrices lie in the host's memory.
models::WeightDigests load_and_digest_weights(ModelSession& session, const nn::WeightShard& shard,
                                              bool on_host = false);

/// Both at once.
ModelSession load_model(const std::filesystem::path& path, const precision::Policy& policy,
                        const device::Device& device, const std::optional<peft::LoraConfig>& lora,
                        std::uint64_t seed);

/// The same with the trained adapter of a PEFT folder, and with the tokenizer of that folder's run where the
/// adapter has tables of its own.
ModelSession load_model_with_adapter(const std::filesystem::path& path, const std::filesystem::path& adapter,
                                     const precision::Policy& policy, const device::Device& device);

/// The device's rate for matrix products in the policy's compute dtype, where it is known.
std::optional<double> peak_flops(const ModelSession& session);

/// Ids that end a continuation: generation_config.json's `eos_token_id` (one or a list), config.json's, and
/// the tokenizer's EOS.
std::vector<std::int32_t> stop_ids(const std::filesystem::path& model, const ModelSession& session);

}  // namespace lorikeet::recipes
