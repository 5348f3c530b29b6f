#include "plan/memory.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>

#include "data/micro_batch.h"
#include "ops/block_pool.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/product_cache.h"
#include "parallel/host_weights.h"
#include "peft/lora.h"
#include "train/adamw.h"
#include "train/device_batch.h"
#include "train/micro_step.h"

namespace lorikeet::plan {
namespace {

using Bytes = std::int64_t;

// Buffers of the math library's threads and code that a first step touches: measured on steps too small for
// anything else to count.
constexpr Bytes kRuntimeCpu = Bytes{32} << 20;
// What is kept of 16-bit products, once rows of enough lengths have come by.
constexpr Bytes kProductCaches = ops::kProductCacheRules.products * ops::kProductCacheRules.bytes_of_product;
// cuBLAS's workspaces, by libtorch's default for Hopper; others take less.
constexpr Bytes kRuntimeCuda = Bytes{64} << 20;
// On a GPU blocks are cut out of larger ones, and remainders stay unused: assumed, not measured.
constexpr double kFragmentationCuda = 1.0 / 16;

// Parts of ops::DryRun.
enum Part : std::size_t { kWorkspace, kWeights, kAdapter, kOptimizer, kActivations, kLogits };

// Lends a model's units as they are, and tells the dry run where in the step it is: what is alive when the
// next unit is borrowed lives from one layer to the next.
class StepObserver : public nn::UnitLender {
 public:
  StepObserver(nn::CausalLM& model, ops::DryRun& run, bool fetches)
      : model_(model),
        run_(run),
        tables_(model.layer_inputs() != nullptr ? 2 : 1),
        head_(model.layers().size() + tables_) {
    if (fetches) host_weights_.emplace(at::Device(at::kMeta), model);
    model_.store().lend_by(this);
  }
  ~StepObserver() override { model_.store().lend_by(nullptr); }
  StepObserver(const StepObserver&) = delete;
  StepObserver& operator=(const StepObserver&) = delete;

  void expect(const std::vector<const nn::WeightUnit*>& order) override {
    next_ = 0;
    if (host_weights_) host_weights_->expect(order);
  }

  nn::UnitLoan borrow(const nn::WeightUnit& unit) override {
    // Before the embedding there are the batch and the rotary table.
    run_.assign(next_ == 0 ? kWorkspace : kActivations);
    const Bytes activations = run_.now().parts.at(kActivations);
    // Units are the embedding, that of layers' inputs, layers, the head, and the layers again.
    const auto first = static_cast<std::size_t>(model_.first_trained_layer()) + tables_;
    // Behind the last layer there is the stream too.
    if (next_ > first && (next_ < head_ || first + 1 == head_))
      per_layer_ = std::max(per_layer_, activations - before_);
    before_ = activations;
    const nn::UnitLoan loan = host_weights_ ? host_weights_->borrow(unit) : nn::UnitLoan{&unit, unit.part()};
    run_.assign(kWeights);
    run_.count_others_as(next_ == head_ ? kLogits : kWorkspace);
    ++next_;
    return loan;
  }

  Bytes per_layer() const { return per_layer_; }

 private:
  nn::CausalLM& model_;
  ops::DryRun& run_;
  std::optional<parallel::HostWeights> host_weights_;
  std::size_t tables_, head_, next_ = 0;
  Bytes before_ = 0, per_layer_ = 0;
};

// Rows of the longest length, and one with the rest; labels at the end.
data::MicroBatch micro_batch(const MicroSize& size) {
  data::MicroBatch micro;
  const auto tokens = static_cast<std::size_t>(size.tokens);
  micro.tokens.resize(tokens);
  micro.position_ids.resize(tokens);
  micro.labels.resize(tokens);
  micro.cu_seqlens = {0};
  for (Bytes end = 0; end < size.tokens;) {
    end = std::min(end + std::max<Bytes>(size.longest, 1), size.tokens);
    micro.cu_seqlens.push_back(static_cast<std::int32_t>(end));
    micro.sample_ids.push_back(0);
  }
  // Empty ones stand for those that are shorter than the longest: kernels have scratch for each.
  while (micro.sequences() < size.sequences) {
    micro.cu_seqlens.push_back(static_cast<std::int32_t>(size.tokens));
    micro.sample_ids.push_back(0);
  }
  for (Bytes row = size.tokens - size.label_tokens; row < size.tokens; ++row) micro.label_rows.push_back(row);
  micro.max_seqlen = std::min(size.longest, size.tokens);
  micro.real_tokens = size.tokens;
  return micro;
}

at::Tensor dry_bytes(Bytes count) {
  return at::empty({count}, at::TensorOptions().dtype(at::kByte).device(at::kMeta));
}

}  // namespace

std::vector<std::pair<std::string, std::int64_t>> MemoryEstimate::rows() const {
  return {{"weights", weights},
          {"adapter", adapter},
          {"optimizer", optimizer},
          {"activations", activations},
          {"logits", logits},
          {"workspace", workspace},
          {"graphs", graphs},
          {"fragmentation", fragmentation},
          {"product_caches", product_caches},
          {"runtime", runtime}};
}

MemoryEstimate step_memory(const MemoryInput& in) {
  peft::LoraAdapters adapters(in.lora, in.policy, /*seed=*/0);
  peft::LoraFactory factory(in.policy, adapters);
  nn::CausalLM model(*in.model, factory);
  // Before the dry run, which has the bytes that are really held in their place.
  model.store().allocate(at::kMeta);

  ops::DryRun run(in.target);
  const at::Tensor weights = dry_bytes(in.frozen_bytes);
  run.assign(kWeights);
  adapters.store().allocate(at::kMeta);
  run.assign(kAdapter);
  const train::AdamW optimizer(adapters.store(), {});
  run.assign(kOptimizer);
  StepObserver observer(model, run, in.saving.offload.weights);
  const data::MicroBatch micro = micro_batch(in.micro);
  const bool cpu = in.target.device == at::kCPU;
  // On a CPU the second step finds the free blocks that the first one left.
  for (int step = 0; step < (cpu ? 2 : 1); ++step) {
    const nn::Batch batch = train::to_device(micro, at::kMeta);
    train::run_micro_step(model, batch, {.saving = in.saving});
  }

  const ops::DryMoment& peak = run.peak();
  const Bytes used = peak.total() - peak.unused;
  const bool caches = cpu && in.target.native_products && dtype_size(in.policy.compute) == 2 &&
                      !ops::native_products_are_own();
  MemoryEstimate out{.weights = peak.parts[kWeights],
                     .adapter = peak.parts[kAdapter],
                     .optimizer = peak.parts[kOptimizer],
                     .activations = peak.parts[kActivations],
                     .logits = peak.parts[kLogits],
                     .workspace = peak.parts[kWorkspace],
                     .fragmentation = run.most_held() - used,
                     .product_caches = caches ? kProductCaches : 0,
                     .runtime = cpu ? kRuntimeCpu : kRuntimeCuda,
                     .activations_per_layer = observer.per_layer(),
                     .host_activations = run.host_peak(),
                     .moved_activations = run.host_bytes(),
                     .tokens = in.micro.tokens};
  if (!cpu && in.saving.offload.weights) out.host_weights = model.store().host_bytes(in.target.device);
  if (!cpu) {
    const Bytes moving = out.activations + out.logits + out.workspace;
    // Recorded micro-steps share one pool of the largest one's size; others, and validation, run beside it.
    if (in.cuda_graphs) out.graphs = moving;
    out.fragmentation = static_cast<Bytes>(kFragmentationCuda * static_cast<double>(moving + out.graphs));
  } else if (out.fragmentation > 0) {
    // Steps whose rows have other lengths leave free blocks of other sizes: in time as many as are kept at
    // all.
    const std::size_t most_kept = ops::kBlockRules.most_kept(static_cast<std::size_t>(used));
    out.fragmentation = std::max(out.fragmentation, static_cast<Bytes>(most_kept));
  }
  return out;
}

}  // namespace lorikeet::plan
