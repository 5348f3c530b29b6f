#include "recipes/lora_finetune.h"

#include <ATen/ATen.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "base/counted.h"
#include "base/error.h"
#include "base/file.h"
#include "base/fingerprint.h"
#include "base/log.h"
#include "base/strings.h"
#include "config/config.h"
#include "data/load.h"
#include "hub/resolve.h"
#include "io/disk.h"
#include "ops/cpu_allocator.h"
#include "ops/out_of_memory.h"
#include "parallel/host_weights.h"
#include "parallel/weight_gatherer.h"
#include "peft/adapter_file.h"
#include "plan/strategy.h"
#include "recipes/agreed_facts.h"
#include "recipes/best_adapter.h"
#include "recipes/devices.h"
#include "recipes/interrupt.h"
#include "recipes/merge.h"
#include "recipes/model_session.h"
#include "recipes/phases.h"
#include "recipes/product_choice.h"
#include "recipes/rank_group.h"
#include "recipes/run_facts.h"
#include "recipes/run_folder.h"
#include "recipes/run_inputs.h"
#include "recipes/settings_map.h"
#include "recipes/starting_values.h"
#include "recipes/step_choice.h"
#include "recipes/step_plan.h"
#include "recipes/step_traces.h"
#include "recipes/tokenizer_files.h"
#include "recipes/trial_step.h"
#include "recipes/what_stays.h"
#include "train/loop.h"
#include "train/memory.h"

namespace lorikeet::recipes {
namespace {

[[noreturn]] void fail_before_weights() {
  throw Error("out of memory before the base was read", ErrorKind::kRunFailed);
}

/// One run from what it is made of to its adapter.
class Finetune {
 public:
  /// `folder`: of the run's files, which are the first rank's alone; nullptr on the others.
  Finetune(const config::Settings& settings, RankGroup& group, Phases& phases, RunInputs& inputs,
           RunFolder* folder)
      : settings_(settings),
        group_(group),
        phases_(phases),
        inputs_(inputs),
        session_(inputs.session),
        data_(inputs.data),
        sampler_(inputs.sampler),
        folder_(folder),
        step_plan_(session_, settings, data_.train, sampler_, least_memory_saving(settings),
                   group.least("usual micro-batch", usual_micro_tokens(session_, settings))),
        checkpoints_(output_dir(), base_name(), settings.checkpoint.keep_last) {}

  void run() {
    try {
      run_phases();
    } catch (const std::exception& error) {
      if (dynamic_cast<const train::StepNotFinite*>(&error) != nullptr)
        group_.say_at_end("");  // the same command would repeat that step
      else if (state_.step > 0)
        say_what_stays();  // as it is now: the folder may be gone
      if (!ops::is_out_of_memory(error)) throw;
      fail_out_of_memory();
    }
  }

 private:
  void run_phases() {
    RunFolder::Identity identity = identity_of(settings_, inputs_);
    const RunFolder::Begin begin = agree(identity);
    if (begin == RunFolder::Begin::kFinished) {
      log_info(
          "finished already (anew: checkpoint.overwrite=true checkpoint.resume=never): the adapter lies in " +
          output_dir().string());
      const InterruptGuard guard;
      InterruptGuard::finishing();
      if (folder_ != nullptr) merge_if_wanted();
      return;
    }
    const bool resume = begin == RunFolder::Begin::kResume;
    products_ = settle_products(
        session_, settings_, group_,
        resume && folder_ != nullptr ? std::optional(folder_->fact("products")) : std::nullopt);
    choose_strategy(resume);
    read_weights(identity);
    if (folder_ != nullptr && resume) folder_->require_same_weights(identity, base());
    group_.phase("connect");
    group_.connect(session_.torch_device(), strategy_.degree);
    if (strategy_.degree > 1) {
      prefetcher_ = std::make_unique<parallel::WeightGatherer>(*group_.sharers(), *session_.model);
    } else if (step_.saving.offload.weights) {
      prefetcher_ = std::make_unique<parallel::HostWeights>(session_.torch_device(), *session_.model);
    }
    prepare(resume, identity);
    const InterruptGuard guard;
    end_ = loop(identity, begin == RunFolder::Begin::kReplace);
    ops::release_free_blocks();  // a finished run's peak is that of its steps
    if (prefetcher_) prefetcher_->drain();
    if (end_ == train::LoopEnd::kInterrupted) {
      if (folder_ != nullptr && state_.step == 0 && !replaces_) folder_->forget_run();
      fail_interrupted(what_stays().after_interrupt());
    }
    if (folder_ == nullptr) return;
    InterruptGuard::finishing();
    group_.phase("finish");
    finish();
    folder_->write(identity, true, facts());
    report();
    merge_if_wanted();
  }

  std::filesystem::path base() const { return settings_.model.path; }
  // What the adapter says it is for: a name of the Hub where the base is its snapshot, else the folder.
  std::string base_name() const { return hub::repository_of_snapshot(base()).value_or(base().string()); }
  std::filesystem::path output_dir() const { return settings_.checkpoint.output_dir; }

  // All ranks run the same thing, and begin as the first one's folder says.
  RunFolder::Begin agree(const RunFolder::Identity& identity) {
    group_.phase("agree");
    group_.require_agreement(agreed_facts(settings_, identity));
    std::string begin;
    if (folder_ != nullptr) {
      const bool resume = settings_.checkpoint.resume == config::Resume::kAuto;
      begin =
          std::to_string(static_cast<int>(folder_->begin(identity, resume, settings_.checkpoint.overwrite)));
    }
    return static_cast<RunFolder::Begin>(std::stoi(group_.share("begin", begin)));
  }

  // What every rank holds of the frozen weights; all come to the same answer.
  void choose_strategy(bool resume) {
    traces_.emplace(settings_.metrics.profile_steps, output_dir(), group_.placement());
    process_bytes_ = train::resident_bytes();
    const comm::Placement& placement = group_.placement();
    const LeastMemory least = least_memory(session_.device, group_);
    const std::optional<std::int64_t> available = least.available;
    if (!group_.alone()) {
      strategy_ = plan::choose_strategy(
          {.settings = settings_.distributed,
           .world_size = placement.world_size,
           .local_size = placement.local_size,
           .least_local_size = static_cast<int>(group_.least("ranks of a node", placement.local_size)),
           .most_local_size = static_cast<int>(-group_.least("most ranks of a node", -placement.local_size)),
           .need = [&](int degree) { return step_plan_.memory(step_plan_.least_micro_tokens(), degree); },
           .available = available});
      log_info("strategy: " + strategy_.name + ", " + strategy_.reason +
               (strategy_.name == "hybrid"
                    ? "; " + std::to_string(strategy_.degree) + " ranks share a copy of the weights"
                    : ""));
    }
    step_ = choose_step({.session = session_,
                         .settings = settings_,
                         .dataset = data_.train,
                         .sampler = sampler_,
                         .memory = least,
                         .degree = strategy_.degree,
                         .begun_with = resume ? begun_with() : std::nullopt},
                        step_plan_, group_);
  }

  // A resumed run goes on with the micro-batches that it began with, whatever is free now: then its sums are
  // the same.
  std::optional<std::int64_t> begun_with() {
    if (settings_.batch.micro_tokens) return std::nullopt;
    const auto own = folder_ != nullptr ? folder_->automatic_micro_tokens() : std::nullopt;
    const std::string begun = group_.share("micro tokens", own ? std::to_string(*own) : "");
    return begun.empty() ? std::nullopt : std::optional<std::int64_t>(std::stoll(begun));
  }

  // Hashes every byte that a rank reads: only then is it known whether the base is the run's.
  void read_weights(RunFolder::Identity& identity) {
    group_.phase("read model");
    const models::WeightDigests own =
        load_and_digest_weights(session_, {group_.placement().rank % strategy_.degree, strategy_.degree},
                                step_.saving.offload.weights);
    phases_.finish("read model");
    // Waits for all: reading may take one rank far longer than another, and connecting has a time limit.
    const auto texts = group_.collect("weights read", models::digests_text(own));
    identity.tensors = models::combine_digests(own, texts, strategy_.degree);
    identity.model +=
        " " + versioned_fingerprint(models::kBaseFingerprintVersion,
                                    models::base_fingerprint(identity.architecture, identity.tensors));
  }

  void prepare(bool resume, RunFolder::Identity& identity) {
    peft::LoraAdapters& adapters = *session_.adapters;
    optimizer_.emplace(adapters.store(), adamw_options(settings_));
    log_info("adapter: " + counted(adapters.modules().size(), "module") + ", " +
             counted(adapters.store().numel(), "parameter") + ", rank " +
             std::to_string(adapters.config().rank));
    group_.phase("prepare");
    if (resume && restore()) {
      if (folder_ != nullptr) {
        identity.init = folder_->begun_from();  // whatever lies there now
        reference_ops_ = reference_ops_fact(folder_->fact("reference_ops"));
      }
    } else {
      if (resume) log_info("no checkpoint of the run is there: it begins at its first step");
      identity.init = initialize_adapters(settings_, session_, data_.train_report, group_);
    }
    confirm_micro_tokens();
    if (folder_ != nullptr)
      io::require_free_space(output_dir(), output_bytes(settings_, sampler_.total_steps() - state_.step,
                                                        adapters.store().numel(), resume));
  }

  // On a GPU the plan has the last word only after a real pass; all ranks make the same passes, and take the
  // same number.
  void confirm_micro_tokens() {
    if (!session_.device.is_cuda()) return;
    const std::int64_t expected = step_.micro_tokens;
    const auto confirmed = step_plan_.confirmed(expected, [&](const data::MicroOptions& micro) {
      const bool own = trial_step(session_, data_.train, micro, step_.saving,
                                  step_plan_.graphs_bytes(micro.micro_tokens, strategy_.degree),
                                  prefetcher_.get(), group_.communicator());
      return group_.least("trial of " + std::to_string(micro.micro_tokens), own ? 1 : 0) == 1;
    });
    if (!confirmed) fail_out_of_memory();
    step_.micro_tokens = *confirmed;
    if (step_.micro_tokens != expected)
      warn_of_smaller_micro(expected, step_.micro_tokens, "there is, as a trial found");
  }

  [[noreturn]] void fail_out_of_memory() {
    if (step_.micro_tokens == 0) fail_before_weights();
    const at::Device device = session_.torch_device();
    const auto peak = static_cast<std::int64_t>(train::peak_memory_bytes(device));
    const std::int64_t got = device.is_cuda() ? peak : peak - static_cast<std::int64_t>(process_bytes_);
    throw Error(
        step_plan_.out_of_memory(got, step_.micro_tokens, strategy_.degree, group_.placement().world_size) +
            (state_.step == 0 ? "\n" + what_stays().after_failure() : ""),
        ErrorKind::kRunFailed);
  }

  WhatStays what_stays() const {
    return {settings_.checkpoint, state_.step, replaces_, folder_ != nullptr ? &checkpoints_ : nullptr};
  }

  void say_what_stays() { group_.say_at_end(what_stays().after_failure()); }

  // Goes on from the latest checkpoint, which the first rank reads; false when there is none.
  bool restore() {
    peft::LoraAdapters& adapters = *session_.adapters;
    std::string found;
    if (folder_ != nullptr) {
      const auto state = load_latest_checkpoint(checkpoints_, output_dir(),
                                                settings_.data.validation.keep_best, adapters, *optimizer_);
      if (state) found = state->json().dump();
    }
    found = group_.share("resume", found);
    if (found.empty()) return false;
    const Json json = Json::parse(found, "the checkpoint's state");
    state_ = train::RunState::from_json(JsonView(json, "the checkpoint's state"));
    group_.broadcast(adapters.store().all_values());
    for (const at::Tensor& tensor : optimizer_->state()) group_.broadcast(tensor);
    adapters.store().refresh_compute();
    log_info("resuming after step " + std::to_string(state_.step));
    return true;
  }

  // With the first step done: a run that can't do it leaves the one that is there. No rank writes before the
  // files of that one are gone.
  void replace(const RunFolder::Identity& identity) {
    if (folder_ != nullptr) begin_writing(identity);
    group_.share("replaced", "");
    replaces_ = false;
  }

  // Writes what the folder holds of a run from its beginning on.
  void begin_writing(const RunFolder::Identity& identity) {
    if (replaces_) folder_->give_up_run();
    folder_->write(identity, false, facts());
    write_file_atomic(output_dir() / "config.yaml", config::to_yaml(settings_));
    // At once: checkpoints are adapters too, and are asked in the words of the same template.
    copy_tokenizer_files(base(), output_dir());
    add_tokens(output_dir(), session_.added_tokens);
    if (inputs_.chat_template) set_chat_template(output_dir(), *inputs_.chat_template, base());
    metrics_.emplace(output_dir() / "metrics.jsonl", replaces_ ? 0 : state_.step, state_.validation_pending);
    if (settings_.metrics.tensorboard) metrics_->show_in_tensorboard();
  }

  train::LoopEnd loop(const RunFolder::Identity& identity, bool replaces) {
    const std::int64_t total = sampler_.total_steps();
    std::optional<train::Progress> progress;
    if (folder_ != nullptr) progress.emplace(total, settings_.metrics.log_every_steps);
    group_.phase("training");
    phases_.finish("prepare");
    replaces_ = replaces;
    if (folder_ != nullptr && !replaces_) begin_writing(identity);
    const train::LoopOptions options{
        .schedule = train::make_schedule(settings_.lr_scheduler, settings_.optimizer.lr, total),
        .micro = micro_options(settings_, step_.micro_tokens),
        .save_every_steps = settings_.checkpoint.save_every_steps,
        .save_every_epochs = settings_.checkpoint.save_every_epochs,
        .validate_every_steps = settings_.data.validation.every_steps,
        .patience = settings_.data.validation.patience,
        .peak_flops = peak_flops(session_),
        .saving = step_.saving,
        .largest_tokens = step_.memory.tokens,
        .cuda_graphs = settings_.training.cuda_graphs,
        .verify = settings_.distributed.verify};
    const train::LoopHooks hooks{.interrupted = [] { return InterruptGuard::requested(); },
                                 .first_step =
                                     [&] {
                                       phases_.finish("first step");
                                       if (replaces_) replace(identity);
                                       say_what_stays();
                                       if (progress) progress->message(phases_.line());
                                     },
                                 .trace_file = [&](std::int64_t step) { return traces_->file(step); },
                                 .saved = [&] { say_what_stays(); },
                                 .new_best =
                                     [&](const train::RunState& state) {
                                       if (folder_ != nullptr && settings_.data.validation.keep_best)
                                         save_best(output_dir(), *session_.adapters, base_name(), state);
                                     }};
    const train::LoopParts parts{.model = *session_.model,
                                 .adapters = *session_.adapters,
                                 .optimizer = *optimizer_,
                                 .training = data_.train,
                                 .sampler = sampler_,
                                 .validation = data_.validation ? &*data_.validation : nullptr,
                                 .device = session_.torch_device(),
                                 .group = group_.communicator(),
                                 .checkpoints = folder_ != nullptr ? &checkpoints_ : nullptr,
                                 .metrics = &metrics_,
                                 .progress = progress ? &*progress : nullptr};
    return train::run_loop(parts, options, hooks, state_);
  }

  // The adapter that the run is for: the best validated one where that is kept, else the last.
  void finish() {
    folder_->require_intact({"run.json", "config.yaml", "metrics.jsonl"});
    if (state_.best && settings_.data.validation.keep_best && state_.best->step != state_.step) {
      load_best(output_dir(), state_, *session_.adapters);
      log_info("the adapter is that of step " + std::to_string(state_.best->step) +
               ", the best validated one");
    }
    peft::save_adapter(output_dir(), *session_.adapters, base_name());
    folder_->forget_merged();
  }

  void merge_if_wanted() {
    if (!settings_.checkpoint.save_merged || is_merged(output_dir() / kMergedFolder)) return;
    folder_->forget_merged();
    const at::Device device = session_.torch_device();
    prefetcher_.reset();
    optimizer_.reset();
    session_ = {};
    merge_finished_run(base(), output_dir(), device);
  }

  Json facts() const {
    Json json = run_facts(session_, settings_, inputs_.devices, strategy_);
    json.set("reference_ops", reference_ops_);
    json.set("phases_seconds", phases_.json());
    json.set("phases_peak_memory_bytes", phases_.peak_memory_json());
    const auto memory = step_.memory.rows();
    json.set("expected_memory_bytes", Json::Object(memory.begin(), memory.end()));
    json.set("activation_checkpointing", std::string(name_of(step_.saving.checkpointing)))
        .set("offload", std::string(name_of(step_.saving.offload)))
        .set("micro_tokens", step_.micro_tokens)
        .set("micro_tokens_of_device_kind", step_.micro_tokens_of_kind);
    if (products_) json.set("products", products_->json());
    add_progress(json, state_, end_ == train::LoopEnd::kEarlyStop);
    json.set("training_examples", static_cast<std::int64_t>(data_.train.size()));
    json.set("training_tokens", data_.train.total_tokens());
    return json;
  }

  void report() const {
    const bool early = end_ == train::LoopEnd::kEarlyStop;
    log_info("done: " + counted(state_.step, "step") +
             (early ? " of " + std::to_string(sampler_.total_steps()) + ", stopped early," : "") + " in " +
             format_seconds(state_.elapsed_seconds) + "; the adapter lies in " + output_dir().string());
  }

  const config::Settings& settings_;
  RankGroup& group_;
  Phases& phases_;
  const RunInputs& inputs_;
  ModelSession& session_;  // of the inputs, as the next two are
  const data::LoadedData& data_;
  const data::Sampler& sampler_;
  RunFolder* folder_;
  StepPlan step_plan_;
  train::CheckpointStore checkpoints_;

  // Set in the order of run_phases.
  std::optional<ProductChoice> products_;  // where there is one
  std::optional<StepTraces> traces_;
  std::uint64_t process_bytes_ = 0;  // before anything of the model was allocated
  plan::Strategy strategy_;
  StepChoice step_;
  std::unique_ptr<parallel::UnitPrefetcher> prefetcher_;  // where weights are split, or on the host
  std::optional<train::AdamW> optimizer_;
  train::RunState state_;
  Json reference_ops_ = reference_ops_fact({});
  bool replaces_ = false;                        // another run, whose files are still there
  std::optional<train::MetricsWriter> metrics_;  // once this run's files are there, on the first rank
  train::LoopEnd end_ = train::LoopEnd::kFinished;
};

void run(const config::Settings& settings, RankGroup& group) {
  Phases phases;
  std::optional<RunFolder> folder;
  if (group.first()) folder.emplace(settings.checkpoint.output_dir);
  std::optional<RunInputs> inputs;
  try {
    inputs.emplace(settings, group, phases);
  } catch (const std::exception& error) {
    if (!ops::is_out_of_memory(error)) throw;
    fail_before_weights();
  }
  Finetune(settings, group, phases, *inputs, folder ? &*folder : nullptr).run();
}

}  // namespace

void lora_finetune(const config::Settings& settings, const comm::Placement& placement) {
  RankGroup group(placement, settings.distributed);
  try {
    run(settings, group);
    group.leave();
  } catch (const std::exception& error) {
    std::rethrow_exception(group.failed(error));
  }
}

}  // namespace lorikeet::recipes
