// What the policy's table says is what the tensors of a run are: on one rank and on two.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <mutex>
#include <set>

#include "comm/ranks.h"
#include "ops/dtype.h"
#include "ops/matmul/matmul.h"
#include "support/catch.h"
#include "support/toy_lora.h"
#include "train/step_runner.h"

using namespace lorikeet;
using namespace lorikeet::train;
using namespace lorikeet::test;
using config::PrecisionPreset;

namespace {

constexpr std::int64_t kSteps = 3;

std::mutex seen_mutex;
std::set<at::ScalarType> seen_operands;  // of matrix products outside the gradients' sums

// Passes every call on, as ATen's own tests do.
void see(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (op.schema().name() == "aten::mm") {
    const std::lock_guard lock(seen_mutex);
    const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
    for (const c10::IValue& operand : arguments.slice(0, 2)) {
      seen_operands.insert(operand.toTensor().scalar_type());
    }
  }
  const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::TESTING_ONLY_GenericMode);
  op.callBoxed(stack);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&see>());
}

// Products are native while it lives, or none would be 16-bit on most CPUs.
class NativeProducts {
 public:
  NativeProducts() { ops::set_half_products(ops::HalfProducts::kNative); }
  NativeProducts(const NativeProducts&) = delete;
  NativeProducts& operator=(const NativeProducts&) = delete;
  ~NativeProducts() { ops::set_half_products(ops::HalfProducts::kByFeature); }
};

// A few steps of a rank's own; checks every tensor that outlives them.
void run(const precision::Policy& policy, comm::Communicator* group) {
  const c10::impl::IncludeDispatchKeyGuard observed(c10::DispatchKey::TESTING_ONLY_GenericMode);
  ToyLora toy({.rank = 3, .alpha = 6, .dropout = 0.1}, policy);
  AdamW optimizer(toy.adapters.store(), {.clip_grad_norm = 1});
  std::optional<parallel::GradientReducer> reducer;
  if (group != nullptr) reducer.emplace(*group, toy.adapters, toy.model);
  StepRunner runner(toy.model, toy.adapters, optimizer, reducer ? &*reducer : nullptr);
  const nn::Batch batch = labelled(toy_prompts());
  const std::int64_t labels = batch.label_count * (group != nullptr ? group->size() : 1);
  StepRunner::Result result;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    result = runner.run({batch}, labels, step, 0.01, policy.gradient_scaling ? 128 : 1);
  }
  const nn::ForwardContext context{.batch = batch};
  const at::NoGradGuard no_grad;
  const at::Tensor hidden = toy.model.hidden_states(context), logits = toy.model.logits(context);

  const std::lock_guard lock(assertions());
  const auto is = [](const at::Tensor& tensor, DType dtype) {
    return ops::from_torch(tensor.scalar_type()) == dtype;
  };
  for (const auto& unit : toy.model.store().units()) {
    for (std::size_t i = 0; i < unit->segments().size(); ++i) {
      if (unit->segments()[i].quantized == nullptr) CHECK(is(unit->tensor(i), policy.base_storage));
      CHECK((unit->segments()[i].quantized != nullptr) ==
            (policy.quantization && unit->segments()[i].is_matrix() && unit->name().starts_with("layer")));
    }
  }
  const peft::AdapterStore& store = toy.adapters.store();
  CHECK(is(store.values(), policy.adapter));
  CHECK(is(store.gradients(), policy.gradient));
  CHECK(is(store.compute(0), policy.compute));
  CHECK(is(optimizer.exp_avg(), policy.optimizer_state));
  CHECK(is(optimizer.exp_avg_sq(), policy.optimizer_state));
  CHECK(is(optimizer.updates(), precision::Policy::kCount));
  CHECK(is(hidden, policy.compute));
  CHECK(is(logits, policy.loss));
  CHECK(is(result.loss_sum, policy.loss));
  CHECK(is(result.grad_norm, policy.statistics));
  CHECK(optimizer.updates().item<double>() == kSteps);
  CHECK(std::isfinite(result.loss_sum.item<double>()));
  if (group == nullptr) return;
  // A ring's share of the buffer, there and back.
  const double ring = 2.0 * (group->size() - 1) / group->size();
  const double expected =
      ring * static_cast<double>(kSteps * store.numel()) * static_cast<double>(dtype_size(policy.reduce));
  CHECK(group->ledger()->traffic.at(comm::Collective::kAllReduce).sent_bytes == Approx(expected));
}

}  // namespace

TEST_CASE("every tensor of a run has the dtype that the policy's table says") {
  const auto settings = GENERATE(values<config::PrecisionSettings>({
      {.preset = PrecisionPreset::kBf16},
      {.preset = PrecisionPreset::kFp32},
      {.preset = PrecisionPreset::kFp16},
      {.base_storage = config::BaseStorage::kF32},
      {.compute = DType::kF32},
      {.preset = PrecisionPreset::kFp32, .base_storage = config::BaseStorage::kF16},
      {.base_storage = config::BaseStorage::kNF4},
      {.adapter = DType::kBF16},
      {.reduce = DType::kBF16},
  }));
  const precision::Policy policy = precision::resolve(settings);
  INFO(policy.table());
  const int ranks = GENERATE(1, 2);
  const NativeProducts native;
  seen_operands.clear();
  if (ranks == 1) {
    run(policy, nullptr);
  } else {
    on_ranks(ranks, [&](comm::Communicator& group) { run(policy, &group); });
  }
  std::set<at::ScalarType> allowed{ops::to_torch(policy.compute)};
  // Gradients that are kept in 16 bits are summed in fp32 before they are rounded.
  if (policy.gradient != DType::kF32) allowed.insert(at::kFloat);
  CHECK(seen_operands == allowed);
}

TEST_CASE("the observation of operands would notice products in another dtype") {
  seen_operands.clear();
  ops::set_half_products(ops::HalfProducts::kWidened);
  // bf16 operands would be widened by kernels of our own, which aren't observed.
  run(precision::resolve({.preset = PrecisionPreset::kFp16}), nullptr);
  ops::set_half_products(ops::HalfProducts::kByFeature);
  CHECK(seen_operands == std::set<at::ScalarType>{at::kFloat});
}
