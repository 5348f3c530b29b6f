#include "parallel/gradient_reducer.h"

#include <ATen/ATen.h>

#include <mutex>

#include "comm/ranks.h"
#include "models/toy_fused.h"
#include "support/catch.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::test;
using comm::Communicator;
using parallel::GradientReducer;

namespace {

// The prompts, dealt out to ranks; the last of five ranks gets none.
std::vector<std::vector<std::int32_t>> prompts_of(int rank, int size) {
  std::vector<std::vector<std::int32_t>> own;
  const auto all = toy_prompts();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (static_cast<int>(i) % size == rank) own.push_back(all[i]);
  }
  return own;
}

struct Reduced {
  std::vector<at::Tensor> gradients;  // by rank
  std::vector<std::int64_t> calls, payload;
};

// Every rank's gradients after the reduction, with the bucket size given.
Reduced reduce(int size, std::int64_t bucket_bytes, const precision::Policy& policy = fp32_policy(),
               const config::MemorySaving& saving = {}, const nn::CausalLMSpec& spec = toy_spec()) {
  Reduced out;
  out.gradients.resize(static_cast<std::size_t>(size));
  out.calls.resize(out.gradients.size());
  out.payload.resize(out.gradients.size());
  std::mutex mutex;
  on_ranks(size, [&](Communicator& group) {
    ToyLora toy({.rank = 3, .alpha = 6, .target_modules = {"all-linear"}}, policy, {}, spec);
    GradientReducer reducer(group, toy.adapters, toy.model, bucket_bytes);
    const auto own = prompts_of(group.rank(), size);
    if (!own.empty()) {
      const nn::Batch batch = labelled(own);
      train::run_micro_step(toy.model, batch, {.saving = saving, .reducer = &reducer});
    }
    reducer.finish();
    const std::lock_guard lock(mutex);
    const auto rank = static_cast<std::size_t>(group.rank());
    out.gradients[rank] = toy.adapters.store().gradients().clone();
    out.calls[rank] = group.ledger()->traffic.at(comm::Collective::kAllReduce).calls;
    out.payload[rank] = group.ledger()->traffic.at(comm::Collective::kAllReduce).payload_bytes;
  });
  return out;
}

at::Tensor alone(const nn::CausalLMSpec& spec = toy_spec()) {
  ToyLora toy({.rank = 3, .alpha = 6, .target_modules = {"all-linear"}}, fp32_policy(), {}, spec);
  return toy.gradients({labelled(toy_prompts())}).second;
}

}  // namespace

TEST_CASE("reduced gradients are those of one device, on every rank to the same bits") {
  const at::Tensor expected = alone();
  for (const int size : {2, 5}) {
    for (const std::int64_t bucket : {2048, 1 << 20}) {
      for (const auto& saving : savings()) {
        INFO(size << " ranks, buckets of " << bucket);
        const Reduced found = reduce(size, bucket, fp32_policy(), saving);
        CHECK(relative_error(found.gradients[0], expected) < 2e-6);
        for (const at::Tensor& other : found.gradients) CHECK(at::equal(other, found.gradients[0]));
      }
    }
  }
}

TEST_CASE("adapters of fused modules are reduced while backward goes on, as others are") {
  const at::Tensor expected = alone(fused_toy_spec());
  const Reduced found = reduce(2, 2048, fp32_policy(), {}, fused_toy_spec());
  CHECK(found.calls[0] > 1);
  for (const at::Tensor& gradients : found.gradients) CHECK(relative_error(gradients, expected) < 2e-6);
}

TEST_CASE("adapters on a projection to layers' inputs are reduced last, keys' with what their readers add") {
  const at::Tensor expected = alone(toy_gemma4_spec());
  const Reduced found = reduce(2, 2048, fp32_policy(), {}, toy_gemma4_spec());
  CHECK(found.calls[0] > 1);
  // Through more norms than the other families have, so that the order of sums shows more.
  for (const at::Tensor& gradients : found.gradients) CHECK(relative_error(gradients, expected) < 5e-6);
}

TEST_CASE("what crosses the wire is the adapters' gradients, once") {
  const std::int64_t bytes = alone().numel() * 4;
  const Reduced small = reduce(3, 4096), large = reduce(3, 1 << 20);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CHECK(small.payload[rank] == bytes);
    CHECK(large.payload[rank] == bytes);
    CHECK(large.calls[rank] == 1);
    CHECK(small.calls[rank] == small.calls[0]);
    CHECK(small.calls[rank] > 1);
  }
}

TEST_CASE("a reduce dtype of two bytes halves the traffic and rounds the sums") {
  precision::Policy policy = fp32_policy();
  policy.reduce = DType::kBF16;
  const Reduced found = reduce(2, 1 << 20, policy);
  CHECK(found.payload[0] == alone().numel() * 2);
  const double error = relative_error(found.gradients[0], alone());
  CHECK(error > 1e-5);
  CHECK(error < 1e-2);
  CHECK(at::equal(found.gradients[0], found.gradients[1]));
}
