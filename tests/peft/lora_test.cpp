#include "peft/lora.h"

#include <ATen/ATen.h>

#include <cmath>

#include "models/toy_fused.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::peft;
using Catch::Contains;
using test::error_text;

namespace {

using Names = std::vector<std::string>;

Names adapted(const Names& targets) {
  const test::ToyLora toy({.rank = 2, .alpha = 2, .target_modules = targets});
  Names names;
  for (const auto& module : toy.adapters.modules()) names.push_back(module.name);
  return names;
}

std::string match_error(const Names& targets) {
  const test::ToyLora toy({.rank = 2, .alpha = 2, .target_modules = targets});
  return error_text([&] { toy.adapters.require_matches(); });
}

const std::vector<nn::Module> kQkv{{"h.0.q", 8}, {"h.0.k", 4}, {"h.0.v", 4}};
const std::vector<nn::Module> kMlp{{"h.0.up", 32}};

// The fresh values by name of adapters for these groups, all of 64 inputs.
test::State fresh(const std::vector<std::vector<nn::Module>>& groups, std::uint64_t seed,
                  LoraInit init = LoraInit::kKaiming) {
  LoraAdapters adapters({.rank = 4, .alpha = 4}, test::fp32_policy(), seed);
  for (const auto& group : groups) adapters.declare(group, {.cols = 64});
  adapters.store().allocate(at::kCPU);
  adapters.initialize(init, nn::WeightStore());
  test::State values;
  for (std::size_t i = 0; i < adapters.store().size(); ++i) {
    values[adapters.store().segment(i).name] = adapters.store().value(i).clone();
  }
  return values;
}

}  // namespace

TEST_CASE("all-linear is every projection but the head") { CHECK(adapted({"all-linear"}).size() == 21); }

TEST_CASE("only matching projections of a group get an adapter, and the head when it is named") {
  CHECK(adapted({"key", "output"}) ==
        Names{"transformer.h.0.attn.key", "transformer.h.1.attn.key", "transformer.h.2.attn.key", "output"});
  CHECK(adapted({"h.1.attn.dense"}) == Names{"transformer.h.1.attn.dense"});
}

TEST_CASE("modules with fewer rows or columns than the rank are known by name") {
  LoraAdapters adapters({.rank = 6, .alpha = 6}, test::fp32_policy(), 1);
  adapters.declare(kQkv, {.cols = 64});
  adapters.declare(kMlp, {.cols = 5});
  CHECK(adapters.narrower_than_rank() == Names{"h.0.k", "h.0.v", "h.0.up"});
}

TEST_CASE("a target that matches nothing is an error with the modules there are") {
  CHECK(match_error({"query", "key"}) == "no error");
  CHECK(match_error({"all-linear"}) == "no error");
  CHECK_THAT(match_error({"query", "valeu"}),
             Contains("[lora.target_modules] 'valeu' matches no module") &&
                 Contains("did you mean 'value'?") &&
                 Contains("it has dense, key, output, query, value, w1, w2, w3, wte"));
  CHECK_THAT(match_error({"q_proj_of_another_family"}),
             !Contains("did you mean") && Contains("it has dense"));
  CHECK_THAT(match_error({}), Contains("no module of this model matches"));
}

TEST_CASE("an adapter of a file that the head shares with the embedding is refused") {
  nn::CausalLMSpec spec = test::toy_spec();
  spec.shape.tied_head = true;
  LoraConfig config{
      .rank = 2, .target_modules = {"wte", "query"}, .ensure_weight_tying = true, .from_file = true};
  CHECK_THAT(error_text([&] { test::ToyLora(config, test::fp32_policy(), {}, spec); }),
             Contains("[ensure_weight_tying]") && Contains("transformer.wte"));
  config.from_file = false;
  CHECK(error_text([&] { test::ToyLora(config, test::fp32_policy(), {}, spec); }) == "no error");
}

TEST_CASE("modules to save are the embedding and the head, and no others") {
  const auto error = [](const std::vector<std::string>& saved) {
    return error_text([&] { test::ToyLora({.modules_to_save = saved}).adapters.require_matches(); });
  };
  CHECK(error({"wte", "output"}) == "no error");
  CHECK_THAT(error({"query"}), Contains("[lora.modules_to_save]") && Contains("transformer.wte, output") &&
                                   Contains("'query'"));
  CHECK_THAT(error({"lm_head"}), Contains("'lm_head'"));
}

TEST_CASE("a fresh adapter on the embedding, and fresh tables, change nothing") {
  test::ToyLora toy({.rank = 3, .target_modules = {".*"}, .modules_to_save = {"output"}});
  toy.adapters.initialize(LoraInit::kKaiming, toy.model.store());
  nn::FrozenFactory factory(test::fp32_policy());
  nn::CausalLM plain(test::toy_spec(), factory);
  test::fill(plain, toy.state);
  const nn::Batch batch = test::labelled(test::toy_prompts());
  CHECK(at::equal(toy.model.logits({.batch = batch}), plain.logits({.batch = batch})));
  const auto& embedding = toy.adapters.modules().front();
  REQUIRE(embedding.is_embedding());
  const at::Tensor a = toy.adapters.store().value(embedding.a), b = toy.adapters.store().value(embedding.b);
  CHECK(at::equal(b, at::zeros_like(b)));
  CHECK(a.std().item<double>() == Approx(1).margin(0.4));  // 24 draws of a normal distribution
}

TEST_CASE("the padding's row of the embedding gets no gradient: trained whole, by an adapter, with DoRA") {
  nn::CausalLMSpec spec = test::toy_spec();
  spec.padding_id = 5;
  const nn::Batch batch = test::labelled({{1, 5, 7}, {5, 2}});
  for (const LoraConfig& config :
       {LoraConfig{.modules_to_save = {"wte"}}, LoraConfig{.target_modules = {"wte"}},
        LoraConfig{.use_dora = true, .target_modules = {"wte"}}}) {
    test::ToyLora toy(config, test::fp32_policy(), {}, spec);
    toy.adapters.initialize(LoraInit::kKaiming, toy.model.store());
    const auto& tables = toy.adapters.tables();
    const at::Tensor gradient = toy.adapters.store().gradient(
        tables.empty() ? toy.adapters.modules().front().b : tables.front().segment);
    gradient.zero_();
    nn::EmbeddingKept kept;
    toy.model.embed({.batch = batch}, &kept);
    toy.model.embedding().backward(at::ones({5, 24}), batch, kept);
    for (const std::int64_t id : {1, 7, 2}) CHECK(gradient[id].count_nonzero().item<std::int64_t>() > 0);
    CHECK(gradient[5].count_nonzero().item<std::int64_t>() == 0);
  }
}

TEST_CASE("rows that are added to a table are the mean of its rows, with next to no noise") {
  test::ToyLora toy({.rank = 3, .modules_to_save = {"wte", "output"}, .table_rows = 40});
  toy.adapters.initialize(LoraInit::kKaiming, toy.model.store());
  for (const auto& table : toy.adapters.tables()) {
    const at::Tensor rows = toy.adapters.store().value(table.segment);
    const at::Tensor base = toy.state.at(table.name + ".weight");
    REQUIRE(base.size(0) == 37);
    REQUIRE(rows.size(0) == 40);
    CHECK(at::equal(rows.slice(0, 0, 37), base));
    const at::Tensor noise = rows.slice(0, 37) - base.mean(0);
    CHECK(noise.abs().max().item<double>() < 1e-3);
    CHECK(noise.abs().min().item<double>() > 0);
    CHECK_FALSE(at::equal(rows[37], rows[38]));
  }
  // Tokens that are added can be read and said.
  const nn::Batch batch = test::labelled({{1, 39, 37}, {38, 2}});
  CHECK(toy.model.logits({.batch = batch}).size(1) == 40);
  CHECK(std::isfinite(toy.gradients({batch}).first.item<double>()));
}

TEST_CASE("rows for tokens that only one end of the model has are refused") {
  const auto error = error_text(
      [] { test::ToyLora({.modules_to_save = {"wte"}, .table_rows = 40}).adapters.require_matches(); });
  CHECK_THAT(error, Contains("40 rows") && Contains("output"));
}

TEST_CASE("a fresh DoRA adapter changes nothing") {
  for (const auto& spec : {test::toy_spec(), test::toy_forms_spec(), test::fused_toy_spec()}) {
    test::ToyLora toy({.rank = 2, .alpha = 4, .use_dora = true}, test::fp32_policy(), {}, spec);
    toy.adapters.initialize(LoraInit::kKaiming, toy.model.store());
    nn::FrozenFactory factory(test::fp32_policy());
    nn::CausalLM bare(spec, factory);
    test::fill(bare, toy.state);
    const nn::Batch batch = nn::pack_sequences(test::toy_prompts(), {}, at::kCPU);
    CHECK(test::relative_error(toy.model.logits({.batch = batch}), bare.logits({.batch = batch})) < 2e-6);
    const auto& module = toy.adapters.modules().at(0);
    toy.adapters.store().value(*module.magnitude).mul_(2);
    CHECK(test::relative_error(toy.model.logits({.batch = batch}), bare.logits({.batch = batch})) > 1e-3);
  }
}

TEST_CASE("a fresh adapter that starts from the base changes nothing, and is no zero") {
  const nn::Batch batch = nn::pack_sequences(test::toy_prompts(), {}, at::kCPU);
  for (const auto& spec : {test::toy_spec(), test::toy_forms_spec(), test::fused_toy_spec()}) {
    for (const LoraInit init : {LoraInit::kPissa, LoraInit::kOlora}) {
      for (const bool dora : {false, true}) {
        test::ToyLora toy({.rank = 2, .alpha = 5, .use_dora = dora, .starts_from_base = true},
                          test::fp32_policy(), {}, spec);
        toy.adapters.initialize(init, toy.model.store());
        nn::FrozenFactory factory(test::fp32_policy());
        nn::CausalLM bare(spec, factory);
        test::fill(bare, toy.state);
        const at::Tensor expected = bare.logits({.batch = batch});
        CHECK(test::relative_error(toy.model.logits({.batch = batch}), expected) < 1e-5);
        for (const auto& module : toy.adapters.modules()) toy.adapters.store().value(*module.start_b).zero_();
        toy.adapters.store().refresh_compute();
        CHECK(test::relative_error(toy.model.logits({.batch = batch}), expected) > 1e-2);
      }
    }
  }
}

TEST_CASE("fresh DoRA on the embedding and the head changes nothing, however the other modules start") {
  const nn::Batch batch = nn::pack_sequences(test::toy_prompts(), {}, at::kCPU);
  for (const LoraInit init : {LoraInit::kKaiming, LoraInit::kOlora}) {
    const bool starts = init == LoraInit::kOlora;
    test::ToyLora toy(
        {.rank = 2, .alpha = 4, .use_dora = true, .starts_from_base = starts, .target_modules = {".*"}});
    toy.adapters.initialize(init, toy.model.store());
    nn::FrozenFactory factory(test::fp32_policy());
    nn::CausalLM bare(test::toy_spec(), factory);
    test::fill(bare, toy.state);
    const at::Tensor expected = bare.logits({.batch = batch});
    CHECK(test::relative_error(toy.model.logits({.batch = batch}), expected) < 1e-5);
    const auto& embedding = toy.adapters.modules().front();
    REQUIRE(embedding.is_embedding());
    CHECK_FALSE(embedding.start_a.has_value());
    CHECK(toy.adapters.store().value(embedding.b).count_nonzero().item<std::int64_t>() == 0);
    for (const auto* module : {&embedding, &toy.adapters.modules().back()}) {
      const at::Tensor magnitude = toy.adapters.store().value(*module->magnitude);
      CHECK(magnitude.size(0) == (module->is_embedding() ? 24 : 37));
      magnitude.mul_(2);
      CHECK(test::relative_error(toy.model.logits({.batch = batch}), expected) > 1e-3);
      magnitude.mul_(0.5);
    }
  }
}

TEST_CASE("a start from the base needs no more ranks than the weight has") {
  CHECK_THAT(error_text([] { test::ToyLora({.rank = 25, .alpha = 5, .starts_from_base = true}); }),
             Contains("[lora.init]") && Contains("rank of at most"));
}

TEST_CASE("cached norms follow the values") {
  test::ToyLora toy({.rank = 2, .alpha = 4, .use_dora = true});
  const nn::Batch batch = nn::pack_sequences(test::toy_prompts(), {}, at::kCPU);
  const at::Tensor before = toy.model.logits({.batch = batch});
  toy.randomize(6);
  const at::Tensor after = toy.model.logits({.batch = batch});
  CHECK_FALSE(at::equal(before, after));
  test::ToyLora fresh({.rank = 2, .alpha = 4, .use_dora = true});
  fresh.randomize(6);
  CHECK(at::equal(fresh.model.logits({.batch = batch}), after));
}

TEST_CASE("a group's A lie next to each other, so that they are one matrix") {
  LoraAdapters adapters({.rank = 4, .alpha = 4, .target_modules = {"q", "v"}}, test::fp32_policy(), 1);
  const auto added = adapters.declare(kQkv, {.cols = 64});
  CHECK(adapters.declare(kMlp, {.cols = 64}).empty());
  CHECK(adapters.groups() == 1);
  adapters.store().allocate(at::kCPU);
  REQUIRE(added.size() == 2);
  const AdapterStore& store = adapters.store();
  CHECK(store.segment(added[0].a).name == "h.0.q.lora_A.weight");
  CHECK(store.segment(added[0].a).shape == std::vector<std::int64_t>{4, 64});
  CHECK(store.segment(added[1].b).name == "h.0.v.lora_B.weight");
  CHECK(store.segment(added[1].b).shape == std::vector<std::int64_t>{4, 4});
  CHECK(store.segment(added[1].a).offset == store.segment(added[0].a).offset + 4 * 64);
  CHECK(store.segment(added[0].b).offset == store.segment(added[1].a).offset + 4 * 64);
}

TEST_CASE("the adapters of a model lie in the order in which backward completes them") {
  const test::ToyLora all;
  const AdapterStore& store = all.adapters.store();
  std::int64_t end = store.numel();
  for (const auto& module : all.adapters.modules()) {  // in the order of forward
    CHECK(store.segment(module.a).offset < end);
    if (module.name.ends_with(".dense") || module.name.ends_with(".w2")) end = store.segment(module.a).offset;
  }
  CHECK(end == 0);
}

TEST_CASE("fresh values depend on seed and name alone, not on the order of declaration") {
  const test::State one = fresh({kQkv, kMlp}, 42), other = fresh({kMlp, {kQkv[2], kQkv[0]}}, 42);
  REQUIRE(other.size() == 6);
  for (const auto& [name, tensor] : other) {
    CAPTURE(name);
    CHECK(at::equal(tensor, one.at(name)));
  }
  CHECK_FALSE(at::equal(one.at("h.0.q.lora_A.weight"), one.at("h.0.k.lora_A.weight")));
  CHECK_FALSE(at::equal(one.at("h.0.q.lora_A.weight"), fresh({kQkv}, 43).at("h.0.q.lora_A.weight")));
}

TEST_CASE("B begins at zero and A as PEFT draws it") {
  const std::vector<nn::Module> wide{{"w", 8}};
  for (const LoraInit init : {LoraInit::kKaiming, LoraInit::kGaussian}) {
    LoraAdapters adapters({.rank = 64, .alpha = 4}, test::fp32_policy(), 9);
    const auto module = adapters.declare(wide, {.cols = 400}).at(0);
    adapters.store().allocate(at::kCPU);
    adapters.store().values().fill_(7);
    adapters.initialize(init, nn::WeightStore());
    CHECK(adapters.store().value(module.b).count_nonzero().item<std::int64_t>() == 0);
    const at::Tensor a = adapters.store().value(module.a);  // 25600 values
    const double bound = 1 / std::sqrt(400.0);
    const double deviation = init == LoraInit::kKaiming ? bound / std::sqrt(3.0) : 1.0 / 64;
    CHECK(std::abs(a.mean().item<double>()) < 5 * deviation / 160);
    CHECK(a.std().item<double>() == Approx(deviation).epsilon(0.02));
    if (init == LoraInit::kKaiming) CHECK(a.abs().max().item<double>() <= bound);
  }
}
