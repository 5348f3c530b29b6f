#include "models/loading.h"

#include <ATen/ATen.h>

#include "models/llama/llama.h"
#include "models/toy_family.h"
#include "nn/reorder_rows.h"
#include "peft/tensor_bytes.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::models;
using namespace lorikeet::test;
using Catch::Contains;
using Names = std::vector<std::string>;

namespace {

// A checkpoint folder that holds `state`.
io::Checkpoint written(const TemporaryFolder& folder, const State& state) {
  peft::TensorBytes tensors;
  for (const auto& [name, tensor] : state) tensors.add(name, tensor);
  io::write_safetensors(folder / "model.safetensors", tensors.entries());
  return io::Checkpoint::open(folder.path());
}

struct Toy {
  nn::FrozenFactory factory;
  nn::CausalLM model{toy_spec(), factory};
  State state = toy_state(model, 7);

  explicit Toy(const precision::Policy& policy = fp32_policy()) : factory(policy) {
    model.store().allocate(at::kCPU);
  }
};

State stored(const nn::CausalLM& model) {
  State state;
  for (const auto& unit : model.store().units()) {
    for (std::size_t i = 0; i < unit->segments().size(); ++i) {
      const nn::WeightSegment& segment = unit->segments()[i];
      state[segment.name] = nn::to_module_order(unit->tensor(i), segment.order);
    }
  }
  return state;
}

}  // namespace

TEST_CASE("weights are found under the prefix that a checkpoint has, and other parts are left alone") {
  const TemporaryFolder folder;
  nn::CausalLMSpec spec = toy_spec();
  spec.checkpoint_names = {.prefixes = {{"model.", "language_model.model."}},
                           .other_parts = {"vision_tower."}};
  nn::FrozenFactory factory(fp32_policy());
  nn::CausalLM model(spec, factory);
  model.store().allocate(at::kCPU);
  const State state = toy_state(model, 7);
  State in_file{{"vision_tower.weight", at::ones({2})}, {"language_tower.weight", at::ones({2})}};
  for (const auto& [name, tensor] : state)
    in_file[name.starts_with("model.") ? "language_model." + name : name] = tensor;
  const io::Checkpoint checkpoint = written(folder, in_file);
  const LoadReport report = compare_weights(model, checkpoint);
  CHECK(report.complete());
  CHECK(report.unexpected == Names{"language_tower.weight"});
  load_weights(model, checkpoint);
  for (const auto& [name, tensor] : stored(model)) {
    CAPTURE(name);
    CHECK(at::equal(tensor, state.at(name)));
  }
  CHECK(find_weight(checkpoint, spec.checkpoint_names, "model.none") == nullptr);
}

TEST_CASE("every weight of a checkpoint lands under its name") {
  const TemporaryFolder folder;
  Toy toy;
  const io::Checkpoint checkpoint = written(folder, toy.state);
  const LoadReport report = compare_weights(toy.model, checkpoint);
  CHECK(report.complete());
  CHECK(report.unexpected.empty());
  load_weights(toy.model, checkpoint);
  const State found = stored(toy.model);
  REQUIRE(found.size() == toy.state.size());
  for (const auto& [name, tensor] : toy.state) {
    CAPTURE(name);
    CHECK(at::equal(found.at(name), tensor));
  }
  require_complete(report, checkpoint);
}

TEST_CASE("weights are converted to the policy's storage dtype") {
  const TemporaryFolder folder;
  Toy toy({.base_storage = DType::kBF16});
  State mixed = toy.state;
  mixed["output.weight"] = mixed["output.weight"].to(at::kHalf);
  load_weights(toy.model, written(folder, mixed));
  for (const auto& [name, tensor] : stored(toy.model)) {
    CAPTURE(name);
    CHECK(at::equal(tensor, mixed.at(name).to(at::kBFloat16)));
  }
}

TEST_CASE(
    "values beyond the storage dtype's range are refused, and infinities of the checkpoint's own are not") {
  const TemporaryFolder folder;
  Toy toy({.base_storage = DType::kF16});
  State state = toy.state;
  state["output.weight"] = state["output.weight"].clone();
  state["output.weight"][0][0] = std::numeric_limits<float>::infinity();
  load_weights(toy.model, written(folder, state));
  state["output.weight"][1][0] = 70000.0F;
  state["output.weight"][1][1] = -1e30F;
  CHECK_THAT(error_text([&] { load_weights(toy.model, written(folder, state)); }),
             Contains("'output.weight' has 2 values beyond fp16's largest, 65504") &&
                 Contains("precision.preset=bf16"));
}

TEST_CASE(
    "missing, unexpected and mismatched tensors are reported, and what is left out of the model refused") {
  const TemporaryFolder folder;
  Toy toy;
  State state = toy.state;
  state.erase("transformer.h.1.ln_3.weight");
  state["transformer.h.0.attn.query.weight"] = at::zeros({24, 32});
  state["output.weight"] = at::zeros(toy.state.at("output.weight").sizes(), at::TensorOptions(at::kLong));
  state["transformer.h.3.ln_1.weight"] = at::zeros({24});
  state["transformer.h.0.attn.rotary_emb.inv_freq"] = at::zeros({4});  // older files hold it; it is derived
  const io::Checkpoint checkpoint = written(folder, state);
  const LoadReport report = compare_weights(toy.model, checkpoint);
  CHECK_FALSE(report.complete());
  CHECK(report.missing == Names{"transformer.h.1.ln_3.weight"});
  CHECK(report.unexpected == Names{"transformer.h.3.ln_1.weight"});
  CHECK(report.mismatched == Names{"transformer.h.0.attn.query.weight: expected [32, 24], got [24, 32]",
                                   "output.weight: expected a floating dtype, got int64"});
  CHECK_THAT(error_text([&] { require_complete(report, checkpoint); }),
             Contains("missing: transformer.h.1.ln_3.weight") &&
                 Contains("expected [32, 24], got [24, 32]") && Contains(folder.path().string()));
  CHECK_THAT(error_text([&] { load_weights(toy.model, checkpoint); }), Contains("got [24, 32]"));
}

TEST_CASE("a model is held against a checkpoint without memory for its weights") {
  const TemporaryFolder folder;
  const Json json =
      Json::parse(R"({"vocab_size": 16777216, "hidden_size": 4194304, "intermediate_size": 4194304,
      "num_hidden_layers": 100, "num_attention_heads": 2, "head_dim": 4, "max_position_embeddings": 32,
      "rms_norm_eps": 1e-5, "rope_theta": 10000.0})",
                  "config");
  nn::FrozenFactory factory(fp32_policy());
  const nn::CausalLM model(llama_spec(JsonView(json, "config.json")), factory);  // 22 PB
  const LoadReport report = compare_weights(model, written(folder, {{"model.norm.weight", at::zeros({8})}}));
  CHECK(report.missing.size() == 902);
  CHECK(report.mismatched == Names{"model.norm.weight: expected [4194304], got [8]"});
}

TEST_CASE("a checkpoint with tensors to spare is complete") {
  const TemporaryFolder folder;
  Toy toy;
  State state = toy.state;
  state["vision.weight"] = at::zeros({2});
  const io::Checkpoint checkpoint = written(folder, state);
  const LoadReport report = compare_weights(toy.model, checkpoint);
  CHECK(report.unexpected == Names{"vision.weight"});
  CHECK(error_text([&] { require_complete(report, checkpoint); }) == "no error");
}

TEST_CASE("a tied head reads the embedding, and a copy of it in the file is no surprise") {
  const TemporaryFolder folder;
  const Json json = Json::parse(R"({"vocab_size": 20, "hidden_size": 8, "intermediate_size": 12,
      "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 32, "rms_norm_eps": 1e-5,
      "rope_theta": 10000.0, "tie_word_embeddings": true})",
                                "config");
  nn::FrozenFactory factory(fp32_policy());
  nn::CausalLM model(llama_spec(JsonView(json, "config.json")), factory);
  State state = toy_state(model, 3);
  CHECK_FALSE(state.contains("lm_head.weight"));
  CHECK(state.contains("model.embed_tokens.weight"));
  CHECK(state.contains("model.layers.0.post_attention_layernorm.weight"));
  state["lm_head.weight"] = state.at("model.embed_tokens.weight");
  model.store().allocate(at::kCPU);
  const io::Checkpoint checkpoint = written(folder, state);
  const LoadReport report = compare_weights(model, checkpoint);
  CHECK(report.complete());
  CHECK(report.unexpected.empty());
  CHECK(error_text([&] { load_weights(model, checkpoint); }) == "no error");

  // Another table there: transformers 5 doesn't tie the two then.
  const at::Tensor table = state.at("model.embed_tokens.weight");
  const auto mismatched = [&](const at::Tensor& embedding, const at::Tensor& head) {
    const TemporaryFolder other;
    state["model.embed_tokens.weight"] = embedding;
    state["lm_head.weight"] = head;
    return compare_weights(model, written(other, state)).mismatched;
  };
  const auto wide = at::cat({table, table});
  for (const at::Tensor& head : {table + 1, (table + 1).to(at::kBFloat16), (table + 1).to(at::kHalf), wide}) {
    const Names untied = mismatched(table, head);
    REQUIRE(untied.size() == 1);
    CHECK_THAT(untied[0], Contains("lm_head.weight: expected the numbers of model.embed_tokens.weight") &&
                              Contains("tie_word_embeddings"));
  }
  CHECK_THAT(mismatched(table, wide).at(0), Contains("got [40, 8] for [20, 8]"));
  // The same one in another dtype, rounded on either side.
  for (const auto dtype : {at::kBFloat16, at::kHalf, at::kDouble}) {
    CHECK(mismatched(table, table.to(dtype)).empty());
    CHECK(mismatched(table.to(dtype), table).empty());
  }
}

TEST_CASE("names without the model's prefix are reported as those of a model without its head") {
  const TemporaryFolder folder;
  Toy toy;
  State bare;
  for (const auto& [name, tensor] : toy.state)
    if (name.starts_with("transformer.")) bare[name.substr(std::string("transformer.").size())] = tensor;
  const io::Checkpoint checkpoint = written(folder, bare);
  CHECK_THAT(error_text([&] { require_complete(compare_weights(toy.model, checkpoint), checkpoint); }),
             Contains("names lack the prefix 'transformer.'") && Contains("AutoModelForCausalLM"));
}

TEST_CASE("the parts that several processes load are the whole") {
  const TemporaryFolder folder;
  Toy toy;
  const io::Checkpoint checkpoint = written(folder, toy.state);
  load_weights(toy.model, checkpoint);
  for (const int size : {2, 3}) {
    std::vector<std::vector<at::Tensor>> parts(toy.model.store().units().size());
    for (int rank = 0; rank < size; ++rank) {
      nn::FrozenFactory factory(fp32_policy());
      nn::CausalLM model(toy_spec(), factory);
      model.store().allocate(at::kCPU, {rank, size});
      load_weights(model, checkpoint);
      for (std::size_t u = 0; u < parts.size(); ++u) parts[u].push_back(model.store().units()[u]->part());
    }
    for (std::size_t u = 0; u < parts.size(); ++u) {
      const nn::WeightUnit& unit = *toy.model.store().units()[u];
      const at::Tensor joined = at::cat(parts[u]);
      for (std::size_t i = 0; i < unit.segments().size(); ++i) {
        const nn::WeightSegment& segment = unit.segments()[i];
        if (!segment.is_matrix()) continue;
        const at::Tensor whole = unit.tensor(i);
        const auto bytes = static_cast<std::int64_t>(whole.nbytes());
        CHECK(at::equal(joined.narrow(0, segment.offset_bytes, bytes), whole.flatten().view(at::kByte)));
      }
    }
  }
}
