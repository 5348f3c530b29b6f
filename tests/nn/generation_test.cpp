// Decoding with a cache against the whole forward pass, on the toy family: its window, caps and layers
// without rotary are where a cache goes wrong.
#include "nn/generation.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "models/toy_family.h"
#include "nn/batch.h"
#include "nn/kv_cache.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::nn;

namespace {

using Ids = std::vector<std::int32_t>;

struct Toy {
  FrozenFactory factory{test::fp32_policy()};
  CausalLM model;
  explicit Toy(const CausalLMSpec& spec = test::toy_spec()) : model(spec, factory) {
    test::fill(model, test::toy_state(model, 7));
  }

  at::Tensor logits(const std::vector<Ids>& sequences) const {
    const Batch batch = pack_sequences(sequences, {}, at::kCPU);
    return model.logits({.batch = batch});
  }
};

// Greedy decoding without a cache: the whole sequence again for every token.
Ids greedy(const Toy& toy, Ids sequence, std::int64_t count) {
  const std::size_t prompt = sequence.size();
  for (std::int64_t i = 0; i < count; ++i) {
    const at::Tensor logits = toy.logits({sequence});
    sequence.push_back(static_cast<std::int32_t>(logits[logits.size(0) - 1].argmax().item<std::int64_t>()));
  }
  return {sequence.begin() + static_cast<std::ptrdiff_t>(prompt), sequence.end()};
}

}  // namespace

TEST_CASE("logits of cached decoding equal those of the whole sequences at every position") {
  for (CausalLMSpec spec : test::every_toy_spec()) {
    // Longrope has a length at which its angles change.
    if (spec.rotary->scaling == RotarySpec::Scaling::kLongrope) spec.rotary = test::toy_spec().rotary;
    const Toy toy(spec);
    const std::vector<Ids> whole{{3, 17, 9, 30, 1, 12, 25}, {36, 2, 4, 6}, {5, 5, 8, 20, 11}};
    std::vector<Ids> prompts, rest;
    std::vector<std::int64_t> positions;
    for (const Ids& sequence : whole) {  // all but the last three tokens, then those three one by one
      prompts.emplace_back(sequence.begin(), sequence.end() - 3);
      rest.emplace_back(sequence.end() - 3, sequence.end());
      positions.push_back(static_cast<std::int64_t>(sequence.size()) - 3);
    }
    KvCache cache(std::ssize(spec.layers), 3);
    const Batch first = pack_sequences(prompts, {}, at::kCPU);
    toy.model.logits({.batch = first, .cache = &cache});
    for (std::size_t n = 0; n < 3; ++n) {
      const Batch next = pack_sequences({{rest[0][n]}, {rest[1][n]}, {rest[2][n]}}, positions, at::kCPU);
      const at::Tensor cached = toy.model.logits({.batch = next, .cache = &cache});
      for (std::size_t s = 0; s < whole.size(); ++s) {
        CAPTURE(spec.layers.size(), n, s);
        const at::Tensor full = toy.logits({whole[s]})[positions[s]];
        // Of the largest logit: products of three numbers enlarge what rounding makes of small ones.
        const at::Tensor apart = (cached[static_cast<std::int64_t>(s)] - full).abs().max();
        CHECK(apart.item<float>() < 5e-6F * full.abs().max().item<float>());
        ++positions[s];
      }
    }
  }
}

TEST_CASE("greedy decoding of a batch gives what each prompt gives alone without a cache") {
  const Toy toy;
  const auto prompts = test::toy_prompts();
  const auto results = generate(toy.model, prompts, {.max_new_tokens = 12}, at::kCPU);
  REQUIRE(results.size() == prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) CHECK(results[i] == greedy(toy, prompts[i], 12));
}

TEST_CASE("decoding past the length at which longrope changes its angles gives what whole sequences give") {
  const Toy toy(test::toy_forms_spec());
  REQUIRE(toy.model.cache_switch_length() == 3);
  const auto prompts = test::toy_prompts();  // longer and shorter than that
  const auto results = generate(toy.model, prompts, {.max_new_tokens = 6}, at::kCPU);
  for (std::size_t i = 0; i < prompts.size(); ++i) CHECK(results[i] == greedy(toy, prompts[i], 6));
}

TEST_CASE("a sequence ends at a stop id, which is left out, and the others go on") {
  const Toy toy;
  const auto prompts = test::toy_prompts();
  const auto free = generate(toy.model, prompts, {.max_new_tokens = 12}, at::kCPU);
  const std::int32_t stop = free[1][4];
  const auto stopped =
      generate(toy.model, prompts, {.max_new_tokens = 12, .stop_ids = {stop, 1000}}, at::kCPU);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    CHECK(stopped[i] == Ids(free[i].begin(), std::find(free[i].begin(), free[i].end(), stop)));
  }
  CHECK(stopped[1].size() <= 4);
}

TEST_CASE("ids beyond the vocabulary are never chosen") {
  const Toy toy;
  for (const double temperature : {0.0, 2.0}) {
    const auto results =
        generate(toy.model, test::toy_prompts(),
                 {.max_new_tokens = 20, .temperature = temperature, .seed = 1, .vocab_size = 5}, at::kCPU);
    for (const Ids& ids : results) {
      CHECK(ids.size() == 20);
      CHECK(std::all_of(ids.begin(), ids.end(), [](std::int32_t id) { return id < 5; }));
    }
  }
}

TEST_CASE("sampling repeats with its seed, differs with another, and becomes greedy with a tiny nucleus") {
  const Toy toy;
  const auto prompts = test::toy_prompts();
  const GenerationOptions options{.max_new_tokens = 16, .temperature = 1.5, .seed = 3};
  const auto once = generate(toy.model, prompts, options, at::kCPU);
  CHECK(generate(toy.model, prompts, options, at::kCPU) == once);
  GenerationOptions other = options;
  other.seed = 4;
  CHECK(generate(toy.model, prompts, other, at::kCPU) != once);
  other.top_p = 1e-6;
  CHECK(generate(toy.model, prompts, other, at::kCPU) ==
        generate(toy.model, prompts, {.max_new_tokens = 16}, at::kCPU));
}

TEST_CASE("a sampled answer depends on its prompt's index over all batches, not within its own") {
  const Toy toy;
  const auto prompts = test::toy_prompts();
  REQUIRE(prompts.size() > 1);
  GenerationOptions options{.max_new_tokens = 16, .temperature = 1.5, .seed = 3};
  const auto all = generate(toy.model, prompts, options, at::kCPU);
  options.first_prompt = 1;
  CHECK(generate(toy.model, {prompts[1]}, options, at::kCPU)[0] == all[1]);
  options.first_prompt = 0;
  CHECK(generate(toy.model, {prompts[1]}, options, at::kCPU)[0] != all[1]);
  ++options.seed;  // no shift of the index
  CHECK(generate(toy.model, {prompts[1]}, options, at::kCPU)[0] != all[1]);
}

TEST_CASE("nothing to continue and nothing to add give empty results") {
  const Toy toy;
  CHECK(generate(toy.model, {}, {}, at::kCPU).empty());
  CHECK(generate(toy.model, {{1}}, {.max_new_tokens = 0}, at::kCPU) == std::vector<Ids>(1));
}
