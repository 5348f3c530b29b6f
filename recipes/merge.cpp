#include "recipes/merge.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/philox.h"
#include "base/strings.h"
#include "comm/reason.h"
#include "io/checkpoint.h"
#include "io/disk.h"
#include "io/folders.h"
#include "models/expert_stacks.h"
#include "models/quantization_config.h"
#include "nn/batch.h"
#include "ops/cpu_allocator.h"
#include "ops/host_transfers.h"
#include "ops/out_of_memory.h"
#include "peft/adapter_file.h"
#include "peft/weight_updates.h"
#include "recipes/adapter_template.h"
#include "recipes/interrupt.h"
#include "recipes/merge_record.h"
#include "recipes/merged_checkpoint.h"
#include "recipes/model_session.h"
#include "recipes/run_folder.h"
#include "recipes/tokenizer_files.h"

namespace lorikeet::recipes {
namespace {

constexpr std::int64_t kProbeTokens = 64;

// All arithmetic of a merge is fp32, whatever a run's policy is.
precision::Policy merge_policy(const io::Checkpoint& checkpoint) {
  std::set<DType> stored;
  for (const auto& [name, view] : checkpoint.tensors()) stored.insert(view->dtype);
  return precision::exact_policy(stored);
}

// Logits of a pseudo-random text of tokens below `vocabulary`, the same for the same number, on the CPU.
at::Tensor probe(const ModelSession& session, std::int64_t vocabulary) {
  PhiloxStream stream(0, "merge probe");
  std::vector<std::int32_t> ids;
  ids.reserve(kProbeTokens);
  for (std::int64_t i = 0; i < kProbeTokens; ++i)
    ids.push_back(static_cast<std::int32_t>(stream.below(static_cast<std::uint64_t>(vocabulary))));
  const nn::Batch batch = nn::pack_sequences({ids}, {}, session.torch_device());
  return session.model->logits({.batch = batch}).cpu();
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

void copy_other_files(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    // merges.txt, vocab.txt and Mistral's SYSTEM_PROMPT.txt; tokenizer.model.v3, spiece.model; Qwen's
    // tiktoken files.
    const bool wanted = name.ends_with(".json") || name.ends_with(".jinja") || name.ends_with(".txt") ||
                        name.ends_with(".model") || name.starts_with("tokenizer.model") ||
                        name.ends_with(".tiktoken") || name.starts_with("LICENSE") || name == "README.md";
    if (wanted && entry.is_regular_file()) write_file_atomic(to / name, read_file(entry.path()));
  }
}

}  // namespace

MergeReport merge(const std::filesystem::path& model, const std::filesystem::path& adapter,
                  const std::filesystem::path& output, const device::Device& device) {
  const at::NoGradGuard no_grad;
  if (std::filesystem::exists(output) && !std::filesystem::is_empty(output)) {
    throw Error("[merge] '" + output.string() + "' is not empty; choose a new folder");
  }
  MergeReport report;
  at::Tensor with_adapter, base;
  std::int64_t vocabulary = 0;          // the base's, also where the merged one has more
  std::optional<InterruptGuard> guard;  // outlives the folder, which it lets be removed
  std::optional<io::AtomicFolder> folder;
  {
    io::Checkpoint checkpoint = io::Checkpoint::open(model);
    ModelSession session = load_model_with_adapter(model, adapter, merge_policy(checkpoint), device);
    models::name_expert_parts(checkpoint, session.model->spec().checkpoint_names);
    vocabulary = session.model->shape().vocab_size;
    with_adapter = probe(session, vocabulary);
    auto changes = peft::weight_updates(*session.adapters);
    // Fresh adapters change nothing.
    session.adapters->initialize(peft::LoraInit::kKaiming, session.model->store());
    base = probe(session, vocabulary);

    auto quantization =
        models::quantization_in_config(JsonView(session.config, (model / "config.json").string()));
    const auto& adapted = session.adapters->modules();
    const bool changes_experts = std::any_of(adapted.begin(), adapted.end(),
                                             [](const auto& module) { return module.slice.has_value(); });
    if (quantization == precision::Quantization(precision::kMxfp4) && !changes_experts) {
      quantization.reset();  // of experts, which stay as they are
    } else if (quantization) {
      log_info("merge: the base holds quantised linear weights (" + describe(*quantization) +
               "); they are written as plain numbers, which are what the adapter was trained on");
    }
    const MergedCheckpoint weights(checkpoint, session.model->spec(), std::move(changes), quantization);
    report.merged_tensors = weights.changed();
    io::require_free_space(output, weights.bytes());
    // Until here a signal, unless it is one to a run, ends the process as it ends any.
    if (!InterruptGuard::exists()) guard.emplace(InterruptedWork::kTakeBack);
    InterruptGuard::stop_if_requested();
    folder.emplace(io::take_place_of_empty(output));
    copy_other_files(model, folder->path());
    if (!session.adapters->tables().empty()) copy_tokenizer_files(run_of_adapter(adapter), folder->path());
    weights.write_weights(folder->path());
    weights.write_config(folder->path());
    record_merged(folder->path(), adapter);
    if (const auto trained = adapter_template(adapter))
      set_chat_template(folder->path(), text::jinja_of(trained->chosen, trained->chosen.rows),
                        folder->path());
  }
  InterruptGuard::stop_if_requested();
  const ModelSession merged =
      load_model(folder->path(), merge_policy(io::Checkpoint::open(folder->path())), device, std::nullopt, 0);
  if (!at::isfinite(with_adapter).all().item<bool>())
    throw Error(
        "[merge] '" + model.string() +
            "' with the adapter gives logits that are NaN or infinite: weights hold such numbers, or too "
            "large ones; check the base's files against their source",
        ErrorKind::kRunFailed);
  report.largest_logit_change = largest_difference(with_adapter, probe(merged, vocabulary));
  report.largest_adapter_effect = largest_difference(with_adapter, base);
  InterruptGuard::stop_if_requested();
  folder->commit();
  return report;
}

bool is_merged(const std::filesystem::path& folder) {
  try {
    io::Checkpoint::open(folder);
    return std::filesystem::exists(folder / "config.json");
  } catch (const Error&) {
    return false;
  }
}

void merge_finished_run(const std::filesystem::path& base, const std::filesystem::path& run,
                        const at::Device& trained_on) {
  ops::release_free_blocks();
  ops::release_host_memory(trained_on);
  const std::filesystem::path merged = run / kMergedFolder;
  log_info("merge: the base with the adapter goes to " + merged.string());
  const std::string again =
      "; the same command (with checkpoint.resume=auto) tries it again, `lorikeet merge " + base.string() +
      " " + run.string() + " FOLDER` does it elsewhere";
  try {
    InterruptGuard::stop_if_requested();
    merge(base, run, merged, device::Device{});
  } catch (const std::exception& error) {
    if (InterruptGuard::requested())
      fail_interrupted("before the base was merged with the adapter in " + run.string() +
                       ", which is complete" + again);
    throw Error(
        "[merge] the adapter in " + run.string() + " is complete, but merging it failed: " +
            (ops::is_out_of_memory(error) ? "main memory doesn't hold the base" : comm::reason(error)) +
            again,
        ErrorKind::kRunFailed);
  }
}

}  // namespace lorikeet::recipes
