#include "recipes/model_session.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "base/counted.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "device/peak_rate.h"
#include "models/expert_stacks.h"
#include "models/loading.h"
#include "models/plain_modules.h"
#include "models/quantization_config.h"
#include "models/registry.h"
#include "ops/cpu_allocator.h"
#include "ops/cuda_library.h"
#include "ops/matmul/matmul.h"
#include "ops/quantized/float8_probe.h"
#include "ops/quantized/float8_product.h"
#include "ops/reference_ops.h"
#include "peft/adapter_file.h"
#include "recipes/adapter_base.h"
#include "recipes/adapter_template.h"
#include "recipes/merge_record.h"

namespace lorikeet::recipes {
namespace {

// config.json is read, checked and turned into blocks before any weight is touched.
void require_tokenizer_fits(const ModelSession& session, const std::string& folder) {
  const auto size = static_cast<std::int64_t>(session.tokenizer->vocab_size());
  const std::string ids = "the tokenizer has ids up to " + std::to_string(size - 1);
  if (size > session.embedding_rows()) {
    throw Error("[model.path] '" + folder + "': " + ids + ", the embedding only " +
                std::to_string(session.embedding_rows()) + " rows; they don't belong together");
  }
  const auto& inputs = session.model->spec().layer_inputs;
  if (inputs && size > inputs->vocab_size) {
    throw Error("[model.add_tokens] '" + folder + "': with the added tokens " + ids + ", " + inputs->table +
                " only " + std::to_string(inputs->vocab_size) + " rows, which stay as they are; add fewer");
  }
}

std::int32_t token_id(const JsonView& id) {
  if (id.as_int() < 0 || id.as_int() > INT32_MAX) id.fail("a token's id");
  return static_cast<std::int32_t>(id.as_int());
}

void add_ids(const JsonView& config, std::set<std::int32_t>* ids) {
  const auto eos = config.maybe("eos_token_id");
  if (!eos) return;
  if (eos->json().is_array()) {
    for (const JsonView& id : eos->items()) ids->insert(token_id(id));
  } else {
    ids->insert(token_id(*eos));
  }
}

void allocate_weights(ModelSession& session, const nn::WeightShard& shard, bool on_host = false) {
  ops::install_cpu_allocator();
  if (session.device.is_cuda()) ops::use_cuda_device(session.device.index);
  if (ops::float8_products()) ops::require_float8_products(session.torch_device());
  session.model->store().allocate(session.torch_device(), shard, on_host);
}

void finish_loading(ModelSession& session) {
  session.checkpoint.reset();
  if (session.adapters) session.adapters->store().allocate(session.torch_device());
}

// The config.json of the same model in 16 bits, as families read it.
Json unquantized(const Json& config) {
  Json result = config;
  if (!result.is_object()) return result;
  std::erase_if(result.object(),
                [](const Json::Member& member) { return member.first == "quantization_config"; });
  return result;
}

// A and B of such modules hold more than their whole matrix.
void warn_of_rank(const peft::LoraAdapters& adapters) {
  const std::vector<std::string> narrow = adapters.narrower_than_rank();
  if (narrow.empty()) return;
  log_warning("lora.rank=" + std::to_string(adapters.config().rank) +
              " is more than the rows or columns of " + std::to_string(narrow.size()) + " of " +
              counted(adapters.modules().size(), "module") + " (the first: " + narrow.front() +
              "): a higher rank than these have can't be learned");
}

// PEFT 0.21 on transformers 5, which stacks experts, says nothing where it leaves tensors of an adapter out.
void warn_of_unread_modules(const peft::LoraAdapters& adapters, const std::string& family) {
  static const std::set<std::string> kPassesOverExperts{"gemma4",    "gemma4_text", "lfm2_moe",
                                                        "qwen2_moe", "qwen3_5_moe", "qwen3_5_moe_text"};
  static const std::set<std::string> kPassesOverMlps{"deepseek_v2", "deepseek_v3",   "ernie4_5_moe",
                                                     "glm4_moe",    "glm4_moe_lite", "qwen3_next"};
  const bool experts = kPassesOverExperts.contains(family), mlps = kPassesOverMlps.contains(family);
  const auto& modules = adapters.modules();
  const auto found = std::find_if(modules.begin(), modules.end(), [&](const auto& module) {
    const auto has = [&](const char* part) { return module.name.find(part) != std::string::npos; };
    return !module.slice && (has(".experts.") ? experts : mlps && has(".mlp."));
  });
  if (found == modules.end()) return;
  log_warning("lora.target_modules has " + found->name +
              " and others on which PEFT passes over adapters of this family without saying so; merge what "
              "is trained (lorikeet merge), or leave them out: docs/families.md, Mixtures of experts");
}

}  // namespace

precision::Policy choose_policy(const config::PrecisionSettings& settings, const device::Device& device) {
  const precision::Policy policy = precision::resolve(settings);
  precision::require_supported(policy, device, device::cuda_devices());
  ops::set_cuda_products(policy.matmul == config::Matmul::kTf32);
  return policy;
}

void require_storage_fits(const config::PrecisionSettings& settings, const std::filesystem::path& model) {
  if (!settings.base_storage) return;
  const std::string where = (model / "config.json").string();
  const Json config = models::read_config_json(model);
  const auto quantization = models::quantization_in_config(JsonView(config, where));
  if (!quantization) return;
  if (quantization == precision::Quantization(precision::kMxfp4)) {
    throw Error("[precision.base_storage] expected null for '" + model.string() +
                "', whose experts are quantised (" + describe(*quantization) +
                "), got another storage; leave it out, or give the model's unquantised checkpoint");
  }
  const bool in_four_bits = std::holds_alternative<precision::FourBits>(*quantization);
  const auto same = in_four_bits ? config::BaseStorage::kNF4 : config::BaseStorage::kF8;
  if (*settings.base_storage == same) return;
  throw Error("[precision.base_storage] expected null or " + std::string(in_four_bits ? "nf4" : "fp8") +
              " for '" + model.string() + "', whose linear weights are quantised (" +
              describe(*quantization) +
              "), got another storage; leave it out, or give the model's unquantised checkpoint");
}

at::Device torch_device(const device::Device& device) {
  return device.is_cuda() ? ops::cuda_device(device.index) : at::Device(at::kCPU);
}

ModelSession open_model(const std::filesystem::path& path, const precision::Policy& policy,
                        const device::Device& device, const std::optional<peft::LoraConfig>& lora,
                        std::uint64_t seed, const text::NewTokens& tokens) {
  ModelSession session = open_shapes(path, policy, device, lora, seed, tokens);
  session.checkpoint = io::Checkpoint::open(path);
  models::name_expert_parts(*session.checkpoint, session.model->spec().checkpoint_names);
  models::require_complete(models::compare_weights(*session.model, *session.checkpoint), *session.checkpoint);
  session.checkpoint_fingerprint = session.checkpoint->fingerprint();
  return session;
}

ModelSession open_shapes(const std::filesystem::path& path, const precision::Policy& policy,
                         const device::Device& device, const std::optional<peft::LoraConfig>& lora,
                         std::uint64_t seed, const text::NewTokens& tokens) {
  io::require_model_folder(path);
  Json config = models::read_config_json(path);
  auto [tokenizer, added] = text::load_tokenizer_with(path, tokens);
  std::optional<peft::LoraConfig> with_rows = lora;
  if (with_rows && !added.empty()) {
    with_rows->trains_tables = true;
    with_rows->table_rows = static_cast<std::int64_t>(tokenizer->vocab_size());
  }
  ModelSession session =
      open_config(std::move(config), (path / "config.json").string(), policy, device, with_rows, seed);
  session.tokenizer = std::move(tokenizer);
  session.added_tokens = std::move(added);
  require_tokenizer_fits(session, path.string());
  return session;
}

std::int64_t ModelSession::embedding_rows() const {
  const std::int64_t base = model->shape().vocab_size;
  if (!adapters || adapters->tables().empty()) return base;
  return adapters->store().segment(adapters->tables().front().segment).shape[0];
}

ModelSession open_config(Json config, const std::string& where, const precision::Policy& policy,
                         const device::Device& device, const std::optional<peft::LoraConfig>& lora,
                         std::uint64_t seed) {
  ops::reference_ops();  // refuses another value of its variable, or warns, before anything is computed
  ModelSession session{.policy = policy, .device = device, .config = std::move(config)};
  // What a checkpoint has quantised stays as it is.
  if (const auto in_file = models::quantization_in_config(JsonView(session.config, where)))
    session.policy.quantization = in_file;
  precision::require_products_fit(session.policy);
  ops::set_float8_products(session.policy.matmul == config::Matmul::kFp8);
  const nn::CausalLMSpec spec = models::model_spec(JsonView(unquantized(session.config), where));
  session.architecture = nn::architecture(spec);

  const models::PlainModules plain(JsonView(session.config, where));
  const auto is_plain = [&](const std::string& module) {
    const auto names = spec.checkpoint_names.modules_in_files(module);
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return plain.contains(name); });
  };

  if (lora) {
    peft::LoraConfig config_of_model = *lora;
    config_of_model.checkpoint_names = spec.checkpoint_names;
    config_of_model.write_whole_names = !spec.checkpoint_names.other_parts.empty();
    session.adapters = std::make_unique<peft::LoraAdapters>(config_of_model, session.policy, seed);
    peft::LoraFactory factory(session.policy, *session.adapters);
    factory.keep_plain(is_plain);
    session.model = std::make_unique<nn::CausalLM>(spec, factory);
    session.adapters->require_matches();
    warn_of_rank(*session.adapters);
    if (!lora->from_file)
      warn_of_unread_modules(*session.adapters, JsonView(session.config, where).at("model_type").as_string());
  } else {
    nn::FrozenFactory factory(session.policy);
    factory.keep_plain(is_plain);
    session.model = std::make_unique<nn::CausalLM>(spec, factory);
  }
  return session;
}

void load_weights(ModelSession& session, const nn::WeightShard& shard) {
  allocate_weights(session, shard);
  models::load_weights(*session.model, *session.checkpoint);
  finish_loading(session);
}

models::WeightDigests load_and_digest_weights(ModelSession& session, const nn::WeightShard& shard,
                                              bool on_host) {
  allocate_weights(session, shard, on_host);
  models::WeightDigests digests = models::load_and_digest_weights(*session.model, *session.checkpoint, shard);
  finish_loading(session);
  return digests;
}

ModelSession load_model(const std::filesystem::path& path, const precision::Policy& policy,
                        const device::Device& device, const std::optional<peft::LoraConfig>& lora,
                        std::uint64_t seed) {
  ModelSession session = open_model(path, policy, device, lora, seed);
  load_weights(session);
  return session;
}

ModelSession load_model_with_adapter(const std::filesystem::path& path, const std::filesystem::path& adapter,
                                     const precision::Policy& policy, const device::Device& device) {
  ModelSession session = open_model(path, policy, device, peft::load_adapter_config(adapter), 0);
  if (!warn_if_merged(path, adapter)) warn_if_other_base(path, adapter, session);
  peft::require_adapter_fits(adapter, *session.adapters);
  // An adapter with tables of its own may have more tokens than the base.
  const auto folder = session.adapters->tables().empty() ? std::nullopt : tokenizer_of_adapter(adapter);
  if (folder) {
    session.tokenizer = text::load_tokenizer(*folder);
    require_tokenizer_fits(session, folder->string());
    log_info("tokenizer: the adapter's own (" + folder->string() + ")");
  }
  load_weights(session);
  peft::require_same_base(adapter, *session.adapters, session.model->store());
  peft::load_adapter(adapter, *session.adapters);
  return session;
}

std::optional<double> peak_flops(const ModelSession& session) {
  if (!session.device.is_cuda()) return std::nullopt;
  const auto& found = device::cuda_devices();
  const auto index = static_cast<std::size_t>(session.device.index);
  return index < found.size()
             ? device::peak_flops(found[index].name, session.policy.compute, session.policy.matmul)
             : std::nullopt;
}

std::vector<std::int32_t> stop_ids(const std::filesystem::path& model, const ModelSession& session) {
  std::set<std::int32_t> ids;
  const std::filesystem::path generation = model / "generation_config.json";
  if (std::filesystem::exists(generation)) {
    const Json json = Json::parse(read_file(generation, 1U << 20), generation.string());
    add_ids(JsonView(json, generation.string()), &ids);
  }
  const JsonView config(session.config, (model / "config.json").string());
  add_ids(config, &ids);
  if (const auto text = config.maybe("text_config")) add_ids(*text, &ids);
  if (const auto eos = session.tokenizer->eos_id()) ids.insert(*eos);
  return {ids.begin(), ids.end()};
}

}  // namespace lorikeet::recipes
