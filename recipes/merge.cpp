#include "recipes/merge.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/philox.h"
#include "base/strings.h"
#include "io/checkpoint.h"
#include "io/disk.h"
#include "io/folders.h"
#include "io/safetensors_writer.h"
#include "nn/batch.h"
#include "ops/dtype.h"
#include "peft/adapter_file.h"
#include "peft/weight_updates.h"
#include "recipes/adapter_template.h"
#include "recipes/model_session.h"
#include "recipes/tokenizer_files.h"

namespace lorikeet::recipes {
namespace {

constexpr std::int64_t kProbeTokens = 64;

// All arithmetic of a merge is fp32, whatever a run's policy is.
precision::Policy merge_policy() { return precision::resolve({.preset = config::PrecisionPreset::kFp32}); }

// Logits of a fixed pseudo-random text, on the CPU.
at::Tensor probe(const ModelSession& session) {
  PhiloxStream stream(0, "merge probe");
  std::vector<std::int32_t> ids;
  ids.reserve(kProbeTokens);
  const auto vocabulary = static_cast<std::uint64_t>(session.model->shape().vocab_size);
  for (std::int64_t i = 0; i < kProbeTokens; ++i)
    ids.push_back(static_cast<std::int32_t>(stream.below(vocabulary)));
  const nn::Batch batch = nn::pack_sequences({ids}, {}, session.torch_device());
  return session.model->logits({.batch = batch}).cpu();
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// Writes one shard with the updates added; returns how many tensors they changed.
std::size_t write_shard(const io::SafetensorsFile& file,
                        const std::map<std::string, peft::WeightUpdate>& updates,
                        const std::filesystem::path& target) {
  std::vector<io::TensorSpec> specs;
  for (const io::TensorView& t : file.tensors()) specs.push_back({t.name, t.dtype, t.shape});
  io::SafetensorsWriter writer(target, specs, file.metadata());
  std::size_t merged = 0;
  for (const io::TensorSpec& spec : writer.order()) {
    const io::TensorView& view = *file.find(spec.name);
    const auto update = updates.find(spec.name);
    if (update == updates.end()) {
      writer.write(view.bytes);
    } else {
      std::string bytes(view.bytes);  // aligned, and ours to change
      const at::Tensor weight =
          at::from_blob(bytes.data(), spec.shape, at::TensorOptions().dtype(ops::to_torch(spec.dtype)));
      weight.copy_(update->second.applied_to(weight));
      if (!at::isfinite(weight).all().item<bool>()) {
        throw Error("[merge] " + spec.name + " would get values that are NaN or infinite as " +
                        std::string(dtype_name(spec.dtype)) +
                        ": base and adapter together are beyond its range, or the base has such values",
                    ErrorKind::kRunFailed);
      }
      writer.write(bytes);
      ++merged;
    }
    file.drop_pages(view);
  }
  writer.finish();
  return merged;
}

void copy_other_files(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    const bool wanted = name.ends_with(".json") || name.ends_with(".jinja") || name == "tokenizer.model" ||
                        name.starts_with("LICENSE") || name == "README.md";
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
  {
    ModelSession session = load_model_with_adapter(model, adapter, merge_policy(), device);
    if (session.model->shape().tied_head && session.adapters->modules().back().name == "lm_head") {
      throw Error(
          "[merge] this adapter changes lm_head, whose weight the base shares with its embedding; they can't "
          "be told apart after a merge");
    }
    with_adapter = probe(session);
    const auto changes = peft::weight_updates(*session.adapters);
    // Fresh adapters change nothing.
    session.adapters->initialize(peft::LoraInit::kKaiming, session.model->store());
    base = probe(session);

    const io::Checkpoint checkpoint = io::Checkpoint::open(model);
    io::require_free_space(output, checkpoint.total_bytes());
    io::AtomicFolder folder(output);
    for (const io::SafetensorsFile& file : checkpoint.files()) {
      report.merged_tensors += write_shard(file, changes, folder.path() / file.path().filename());
    }
    if (report.merged_tensors != changes.size()) {
      throw Error("[merge] " + std::to_string(changes.size()) + " weights are adapted, " +
                  std::to_string(report.merged_tensors) + " of them were found in '" + model.string() + "'");
    }
    copy_other_files(model, folder.path());
    if (const auto trained = adapter_template(adapter))
      set_chat_template(folder.path(), text::jinja_of(trained->chosen, trained->chosen.rows));
    folder.commit();
  }
  const ModelSession merged = load_model(output, merge_policy(), device, std::nullopt, 0);
  report.largest_logit_change = largest_difference(with_adapter, probe(merged));
  report.largest_adapter_effect = largest_difference(with_adapter, base);
  return report;
}

}  // namespace lorikeet::recipes
