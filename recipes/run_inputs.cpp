#include "recipes/run_inputs.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/counted.h"
#include "base/fingerprint.h"
#include "base/log.h"
#include "base/strings.h"
#include "config/config.h"
#include "peft/expert_parameters.h"
#include "recipes/devices.h"
#include "recipes/preflight.h"
#include "recipes/run_data.h"
#include "recipes/settings_map.h"
#include "recipes/starting_values.h"
#include "recipes/tokenizer_files.h"
#include "train/determinism.h"
#include "train/flops.h"

namespace lorikeet::recipes {
namespace {

// What of a mixture of experts is trained, which differs from what PEFT's all-linear means.
void log_experts(const ModelSession& session) {
  const nn::CausalLMSpec& spec = session.model->spec();
  const auto mixture = std::find_if(spec.layers.begin(), spec.layers.end(),
                                    [](const auto& layer) { return layer.experts.has_value(); });
  if (mixture == spec.layers.end()) return;
  const train::TokenShares shares(spec);
  const auto& modules = session.adapters->modules();
  const auto adapted = std::count_if(modules.begin(), modules.end(), [&](const auto& module) {
    return shares.is_expert(module.parts.front().name);
  });
  const nn::ExpertsSpec& experts = *mixture->experts;
  const nn::ExpertNames& names = experts.names;
  log_info("experts: " + std::to_string(experts.count) + " a layer, of which a token passes " +
           std::to_string(experts.router.per_token) +
           (experts.branch_norms ? ", beside an MLP"
            : experts.shared     ? ", and a shared one"
                                 : "") +
           (adapted > 0
                ? "; " + counted(adapted, "adapter is", "adapters are") + " on them, the router is frozen"
                : "; they and the router are frozen (" +
                      (experts.stacks.only ? ""
                                           : "lora.target_modules may name " + names.gate + ", " + names.up +
                                                 ", " + names.down + ", or ") +
                      "lora.target_parameters " +
                      peft::within_layer(experts.gate_up_group(0).slice->parameter) + ", " +
                      peft::within_layer(experts.down_group(0).slice->parameter) + ")"));
}

// The model on this rank's device, with what all ranks' devices are called.
ModelSession open_session(const config::Settings& settings, RankGroup& group, Phases& phases,
                          std::vector<std::string>& devices) {
  phases.finish("start");
  group.phase("start");
  const probe::CpuFacts cpus = probe::read_cpu("/");  // before a process is bound to some of them
  const std::vector<device::Device> here = choose_devices(settings.device, group);
  const device::Device device = here.at(static_cast<std::size_t>(group.placement().local_rank));
  const precision::Policy policy = choose_policy(settings.precision, device);
  train::set_deterministic(settings.training.deterministic);  // a step's dry runs go by it
  preflight(settings, group, here, policy, cpus);
  devices = group.collect("devices of all", device::describe(device, device::cuda_devices()));
  log_info("device: " + devices[0] + ", " + counted(at::get_num_threads(), "thread") +
           (group.alone() ? "" : ", " + std::to_string(devices.size()) + " ranks"));

  group.phase("open model");
  const std::string& base = settings.model.path;
  require_storage_fits(settings.precision, base);
  ModelSession session =
      open_model(base, policy, device, lora_config(settings.lora),
                 static_cast<std::uint64_t>(settings.training.seed), new_tokens(settings.model));
  log_info("model: " + base + ", " +
           format_bytes(static_cast<std::uint64_t>(session.model->store().bytes())) +
           " of frozen weights, tokenizer from " + session.tokenizer->description());
  log_experts(session);
  phases.finish("open model");
  return session;
}

data::LoadedData tokenise(const config::Settings& settings, RankGroup& group, const ModelSession& session) {
  group.phase("tokenise");
  data::LoadedData data;
  // The first rank of a machine leaves the tokens in the cache for the others.
  group.by_turns("tokens", [&] { data = load_run_data(settings, session); });
  log_info(data.train_report.describe());
  if (data.validation_report) {
    log_info(data.validation_report->describe());
  } else if (data.validation) {
    log_info("validation: " + std::to_string(data.validation->size()) + " of these examples are held out, " +
             std::to_string(data.train.size()) + " are trained on");
  }
  return data;
}

}  // namespace

RunInputs::RunInputs(const config::Settings& settings, RankGroup& group, Phases& phases)
    : session(open_session(settings, group, phases, devices)),
      data(tokenise(settings, group, session)),
      chat_template(training_template(settings, data.train_report, *session.tokenizer)),
      sampler(data.train, sampler_options(settings)) {
  require_steps_fit(settings, sampler.total_steps());
  log_info("precision (" + session.policy.fingerprint().substr(0, 12) + "):\n" + session.policy.table());
  phases.finish("tokenise");
}

RunFolder::Identity identity_of(const config::Settings& settings, const RunInputs& inputs) {
  const data::LoadedData& data = inputs.data;
  return {.settings = config::to_yaml(settings),
          .steps = inputs.sampler.total_steps(),
          .data = versioned_fingerprint(1, data.train.fingerprint()),
          .validation = data.validation ? versioned_fingerprint(1, data.validation->fingerprint()) : "",
          .init = start_fingerprint(settings.lora, *inputs.session.adapters),
          .model = versioned_fingerprint(1, inputs.session.checkpoint_fingerprint),
          .policy = versioned_fingerprint(1, inputs.session.policy.fingerprint()),
          .architecture = inputs.session.architecture};
}

}  // namespace lorikeet::recipes
