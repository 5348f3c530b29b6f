#include "parallel/weight_gatherer.h"

#include <ATen/ATen.h>

#include <new>
#include <utility>

#include "comm/ranks.h"
#include "models/llama/llama.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::test;
using comm::Communicator;
using parallel::WeightGatherer;

namespace {

std::vector<std::string> names(const std::vector<const nn::WeightUnit*>& units) {
  std::vector<std::string> out;
  for (const nn::WeightUnit* unit : units) out.push_back(unit->name());
  return out;
}

nn::CausalLMSpec tied_spec() {
  const Json json = Json::parse(R"({"vocab_size": 40, "hidden_size": 8, "intermediate_size": 12,
      "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 32, "rms_norm_eps": 1e-5,
      "rope_theta": 10000.0, "tie_word_embeddings": true})",
                                "config");
  return models::llama_spec(JsonView(json, "config.json"));
}

// A model with a tied head and adapters on all its layers.
struct Tied {
  peft::LoraAdapters adapters;
  peft::LoraFactory factory;
  nn::CausalLM model;

  explicit Tied(const nn::WeightShard& shard = {})
      : adapters({.rank = 2, .alpha = 4}, fp32_policy(), 5),
        factory(fp32_policy(), adapters),
        model(tied_spec(), factory) {
    fill(model, toy_state(model, 9), shard);
    adapters.store().allocate(at::kCPU);
    adapters.initialize(peft::LoraInit::kGaussian, model.store());
  }

  std::pair<at::Tensor, at::Tensor> gradients() {
    const nn::Batch batch = labelled(toy_prompts());
    const at::Tensor loss = train::run_micro_step(model, batch, {});
    return {loss, adapters.store().gradients().clone()};
  }
};

std::int64_t gathered_bytes(const Communicator& group) {
  return group.ledger()->traffic.at(comm::Collective::kAllGather).payload_bytes;
}

}  // namespace

TEST_CASE("units are used forward, then the layers backwards; a tied table twice in forward") {
  const ToyLora toy;
  const auto& units = toy.model.store().units();
  const auto order = names(toy.model.units_in_order(true));
  const auto name = [&](std::size_t i) { return units[i]->name(); };
  CHECK(order ==
        std::vector<std::string>{name(0), name(1), name(2), name(3), name(4), name(3), name(2), name(1)});
  const Tied tied;
  const auto& tied_units = tied.model.store().units();
  const auto tied_name = [&](std::size_t i) { return tied_units[i]->name(); };
  CHECK(names(tied.model.units_in_order(true)) == std::vector<std::string>{tied_name(0), tied_name(1),
                                                                           tied_name(2), tied_name(0),
                                                                           tied_name(2), tied_name(1)});
}

TEST_CASE("a model in parts gives the loss and gradients of the whole, to the bit") {
  const std::vector<nn::Batch> batches{labelled(toy_prompts()), labelled({{4, 9, 2}})};
  for (const auto& saving : savings()) {
    ToyLora whole;
    whole.saving = saving;
    const auto expected = whole.gradients(batches);
    for (const int size : {2, 3, 4}) {
      INFO(size << " parts, " << config::overrides({}, saving));
      on_ranks(size, [&](Communicator& group) {
        ToyLora toy({.rank = 3, .alpha = 6}, fp32_policy(), {group.rank(), size});
        toy.saving = saving;
        const WeightGatherer gatherer(group, toy.model);
        const auto found = toy.gradients(batches);
        const std::lock_guard lock(assertions());
        CHECK(at::equal(found.first, expected.first));
        CHECK(at::equal(found.second, expected.second));
        CHECK(gatherer.alive() == 2);  // the first layer, and the embedding ahead of the next micro-batch
        CHECK(gatherer.peak_bytes() == parallel::fetch_cost(toy.model, size).buffer_bytes);
      });
    }
  }
}

TEST_CASE("a model in parts whose layers read each other's keys, and inputs, gives the same to the bit") {
  const std::vector<nn::Batch> batches{labelled(toy_prompts()), labelled({{4, 9, 2}})};
  // The projection to layers' inputs learns, so that their unit comes once more behind the layers; or not.
  for (const char* target : {".*", "h.1.attn.key"}) {
    const peft::LoraConfig config{.rank = 3, .alpha = 6, .target_modules = {target}};
    ToyLora whole(config, fp32_policy(), {}, toy_gemma4_spec());
    const auto expected = whole.gradients(batches);
    on_ranks(2, [&](Communicator& group) {
      ToyLora toy(config, fp32_policy(), {group.rank(), 2}, toy_gemma4_spec());
      toy.saving.checkpointing = config::ActivationCheckpointing::kFull;
      const WeightGatherer gatherer(group, toy.model);
      const auto found = toy.gradients(batches);
      const std::lock_guard lock(assertions());
      CHECK(at::equal(found.first, expected.first));
      CHECK(at::equal(found.second, expected.second));
      CHECK(gatherer.peak_bytes() == parallel::fetch_cost(toy.model, 2).buffer_bytes);
    });
  }
}

TEST_CASE("a tied table is gathered for both of its uses") {
  Tied whole;
  const auto expected = whole.gradients();
  on_ranks(2, [&](Communicator& group) {
    Tied tied({group.rank(), 2});
    const WeightGatherer gatherer(group, tied.model);
    const auto found = tied.gradients();
    const std::lock_guard lock(assertions());
    CHECK(at::equal(found.first, expected.first));
    CHECK(at::equal(found.second, expected.second));
  });
}

TEST_CASE("what crosses the wire are the predicted bytes: the units of each pass, once ahead at both ends") {
  for (const int size : {2, 3}) {
    for (const int passes : {1, 4}) {
      on_ranks(size, [&](Communicator& group) {
        ToyLora toy({.rank = 3, .alpha = 6}, fp32_policy(), {group.rank(), size});
        const WeightGatherer gatherer(group, toy.model);
        toy.gradients(std::vector<nn::Batch>(static_cast<std::size_t>(passes), labelled(toy_prompts())));
        const auto order = toy.model.units_in_order(true);
        const std::lock_guard lock(assertions());
        // The first pass finds no first layer left by an earlier one; the last fetches the next embedding.
        const std::int64_t ends = (order[0]->part_bytes(size) + order[1]->part_bytes(size)) * size;
        CHECK(gathered_bytes(group) == passes * parallel::fetch_cost(toy.model, size).payload_bytes + ends);
      });
    }
  }
}

TEST_CASE("at most the head and the two layers behind it are whole at a time") {
  const ToyLora toy;
  for (const int size : {2, 3}) {
    const auto order = toy.model.units_in_order(true);
    std::int64_t expected = 0;
    for (const std::size_t at : {0, 4}) {  // embedding with layers 0 and 1; head with 2 and 1
      expected = std::max(expected, size * (order[at]->part_bytes(size) + order[at + 1]->part_bytes(size) +
                                            order[at + 2]->part_bytes(size)));
    }
    CHECK(parallel::fetch_cost(toy.model, size).buffer_bytes == expected);
  }
}

TEST_CASE("a forward pass alone, before and after training, works too") {
  ToyLora whole;
  const nn::Batch batch = labelled(toy_prompts());
  const at::Tensor expected = whole.model.token_nll({.batch = batch});
  const auto gradients = whole.gradients({batch});
  on_ranks(2, [&](Communicator& group) {
    ToyLora toy({.rank = 3, .alpha = 6}, fp32_policy(), {group.rank(), 2});
    const WeightGatherer gatherer(group, toy.model);
    for (int turn = 0; turn < 2; ++turn) {
      const at::Tensor first = toy.model.token_nll({.batch = batch});
      const at::Tensor second = toy.model.token_nll({.batch = batch});
      const at::Tensor found = toy.gradients({batch}).second;
      const std::lock_guard lock(assertions());
      CHECK(at::equal(first, expected));
      CHECK(at::equal(second, expected));
      CHECK(at::equal(found, gradients.second));
      CHECK(gatherer.alive() == 2);
    }
  });
}

TEST_CASE("a rank whose pass ends early, wherever, serves the others to the end of theirs") {
  ToyLora whole;
  const auto expected = whole.gradients({labelled(toy_prompts())});
  const std::size_t units = whole.model.units_in_order(true).size();
  for (std::size_t borrowed = 0; borrowed <= units; ++borrowed) {
    INFO(borrowed << " units borrowed of " << units);
    on_ranks(2, [&](Communicator& group) {
      ToyLora toy({.rank = 3, .alpha = 6}, fp32_policy(), {group.rank(), 2});
      WeightGatherer gatherer(group, toy.model);
      if (group.rank() == 1) {
        const auto order = toy.model.units_in_order(true);
        gatherer.expect(order);
        for (std::size_t i = 0; i < borrowed; ++i) gatherer.borrow(*order[i]);
        gatherer.finish_pass();
      } else {
        const auto found = toy.gradients({labelled(toy_prompts())});
        const std::lock_guard lock(assertions());
        CHECK(at::equal(found.second, expected.second));
      }
      gatherer.finish_pass();  // there is nothing left
      // And all go on together.
      const auto found = toy.gradients({labelled(toy_prompts())});
      const std::lock_guard lock(assertions());
      CHECK(at::equal(found.second, expected.second));
    });
  }
}

namespace {

// Has the memory for a unit, but none to begin its fetch with, once.
class ShortOfMemory final : public parallel::UnitPrefetcher {
 public:
  explicit ShortOfMemory(nn::CausalLM& model) : UnitPrefetcher(model) {}
  int fetched = 0;

 protected:
  at::Tensor buffer_of(const nn::WeightUnit& unit) override {
    return at::empty({unit.matrix_bytes()}, at::kByte);
  }
  comm::Pending fetch(const nn::WeightUnit&, const at::Tensor&) override {
    if (!std::exchange(failed_, true)) throw std::bad_alloc();
    ++fetched;
    return comm::Pending();
  }

 private:
  bool failed_ = false;
};

}  // namespace

TEST_CASE("a unit whose fetch didn't begin is fetched when it is asked for again") {
  ToyLora toy;
  ShortOfMemory units(toy.model);
  const auto order = toy.model.units_in_order(true);
  units.expect(order);
  CHECK_THROWS_AS(units.borrow(*order[0]), std::bad_alloc);
  CHECK(units.alive() == 0);
  units.finish_pass();
  CHECK(units.fetched >= static_cast<int>(order.size()));
}

TEST_CASE("a unit out of the stated order is refused") {
  on_ranks(2, [&](Communicator& group) {
    ToyLora toy({.rank = 3, .alpha = 6}, fp32_policy(), {group.rank(), 2});
    WeightGatherer gatherer(group, toy.model);
    const nn::WeightUnit stranger("stranger");
    const auto nothing_stated = error_text([&] { gatherer.borrow(stranger); }, ErrorKind::kRunFailed);
    gatherer.expect(toy.model.units_in_order(true));
    const auto another = error_text([&] { gatherer.borrow(stranger); }, ErrorKind::kRunFailed);
    const auto too_early = error_text([&] { gatherer.borrow(toy.model.head_unit()); }, ErrorKind::kRunFailed);
    const std::lock_guard lock(assertions());
    CHECK_THAT(nothing_stated, Catch::Contains("expected unit 'none'") && Catch::Contains("got 'stranger'"));
    CHECK_THAT(another, Catch::Contains("expected unit 'embedding'") && Catch::Contains("got 'stranger'"));
    CHECK_THAT(too_early, Catch::Contains("expected unit 'embedding'") && Catch::Contains("got 'head'"));
  });
}

TEST_CASE("where only upper layers or the head are trained, lower ones aren't gathered for backward") {
  const auto names_for = [](const char* target) {
    const ToyLora toy({.rank = 2, .alpha = 4, .target_modules = {target}});
    return names(toy.model.units_in_order(true));
  };
  CHECK(names_for("h.2.ffn.w2") ==
        std::vector<std::string>{"embedding", "layer 0", "layer 1", "layer 2", "head", "layer 2"});
  CHECK(names_for("output") ==
        std::vector<std::string>{"embedding", "layer 0", "layer 1", "layer 2", "head"});
}
