#pragma once

#include <ATen/record_function.h>

#include <map>
#include <memory>
#include <string>

#include "nn/batch.h"
#include "ops/dry_run.h"
#include "peft/lora.h"
#include "train/device_batch.h"
#include "train/micro_step.h"

namespace lorikeet::test {

/// Micro-steps without data for a GPU of capability 9.0: bf16, adapters on all linear modules, two sequences,
/// every second token a label. All that the host does is done, but for launches and what libtorch does in
/// calls that have no Meta form (FlashAttention, products that add to fp32).
class DryPass {
 public:
  explicit DryPass(const nn::CausalLMSpec& spec, std::int64_t tokens = 2048, std::int64_t rank = 16)
      : run_({.device = at::kCUDA, .capability = 90}),
        adapters_({.rank = rank}, policy_, /*seed=*/0),
        factory_(policy_, adapters_),
        model_(spec, factory_) {
    model_.store().allocate(at::kMeta);
    adapters_.store().allocate(at::kMeta);
    batch_ = train::to_device(micro_batch(tokens), at::kMeta);
  }

  void step() { train::run_micro_step(model_, batch_, {}); }

  using Calls = std::map<std::string, int>;
  /// A step's calls of libtorch's operators by name, those included that operators make of others.
  Calls calls() {
    static Calls counted;
    counted.clear();
    const auto count = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
      ++counted[function.name()];
      return nullptr;
    };
    const auto handle =
        at::addThreadLocalCallback(at::RecordFunctionCallback(count).scopes({at::RecordScope::FUNCTION}));
    step();
    at::removeCallback(handle);
    return counted;
  }

 private:
  static data::MicroBatch micro_batch(std::int64_t tokens) {
    data::MicroBatch micro;
    const auto count = static_cast<std::size_t>(tokens);
    micro.tokens.resize(count);
    micro.position_ids.resize(count);
    micro.labels.resize(count);
    micro.cu_seqlens = {0, static_cast<std::int32_t>(tokens / 2), static_cast<std::int32_t>(tokens)};
    micro.sample_ids = {0, 1};
    for (std::int64_t row = 0; row < tokens; row += 2) micro.label_rows.push_back(row);
    micro.max_seqlen = tokens / 2;
    micro.real_tokens = tokens;
    return micro;
  }

  precision::Policy policy_;
  ops::DryRun run_;
  peft::LoraAdapters adapters_;
  peft::LoraFactory factory_;
  nn::CausalLM model_;
  nn::Batch batch_;
};

/// The calls of each layer, by those of a model and of the same one with `fewer` layers less.
inline std::map<std::string, double> calls_of_layer(const DryPass::Calls& all, const DryPass::Calls& few,
                                                    std::size_t fewer) {
  std::map<std::string, double> calls;
  for (const auto& [name, count] : all) {
    const auto before = few.find(name);
    const int own = count - (before == few.end() ? 0 : before->second);
    if (own != 0) calls[name] = static_cast<double>(own) / static_cast<double>(fewer);
  }
  return calls;
}

}  // namespace lorikeet::test
