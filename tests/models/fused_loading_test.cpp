// Checkpoints whose modules hold several parts of a group, with rows by groups: loading puts them into the
// order in which blocks compute.
#include <ATen/ATen.h>

#include "llama_json.h"
#include "models/llama/llama.h"
#include "models/loading.h"
#include "models/toy_fused.h"
#include "nn/batch.h"
#include "peft/tensor_bytes.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::models;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

// The same tensors as a checkpoint of separate modules and one of fused ones.
struct Pair {
  TemporaryFolder folder;
  nn::CausalLMSpec separate, fused;
  nn::FrozenFactory factory;
  io::Checkpoint of_separate, of_fused;

  Pair(nn::CausalLMSpec separate_spec, nn::CausalLMSpec fused_spec,
       const precision::Policy& policy = fp32_policy())
      : separate(std::move(separate_spec)),
        fused(std::move(fused_spec)),
        factory(policy),
        of_separate(written("separate", false)),
        of_fused(written("fused", true)) {}

  nn::CausalLM loaded(const nn::CausalLMSpec& spec, const nn::WeightShard& shard = {}) {
    nn::CausalLM model(spec, factory);
    model.store().allocate(at::kCPU, shard);
    // Between groups lie bytes that nobody fills.
    for (const auto& unit : model.store().units()) unit->part().zero_();
    load_weights(model, &spec == &fused ? of_fused : of_separate);
    return model;
  }

 private:
  io::Checkpoint written(const std::string& name, bool fuse_modules) {
    State state = toy_state(nn::CausalLM(separate, factory), 7);
    if (fuse_modules) state = fuse(state, fused);
    peft::TensorBytes tensors;
    for (const auto& [tensor_name, tensor] : state) tensors.add(tensor_name, tensor);
    std::filesystem::create_directory(folder / name);
    io::write_safetensors(folder / name / "model.safetensors", tensors.entries());
    return io::Checkpoint::open(folder / name);
  }
};

at::Tensor logits(const nn::CausalLM& model) {
  const nn::Batch batch = nn::pack_sequences(toy_prompts(), {}, at::kCPU);
  return model.logits({.batch = batch});
}

// One layer of GPT-NeoX's order, each head with its query, key and value, and a gate and up that alternate.
// Large enough for several pieces of the file, and for blocks of a digest that reach beyond a head.
nn::CausalLMSpec wide_spec(bool fused) {
  const Json json = llama_json(
      R"({"vocab_size": 64, "hidden_size": 1024, "intermediate_size": 1536, "num_hidden_layers": 1,
          "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 64})");
  nn::CausalLMSpec spec = llama_spec(JsonView(json, "config.json"));
  if (fused) {
    spec.layers[0].attention.fused_qkv = nn::FusedModule{"query_key_value", 16};
    spec.layers[0].mlp.fused_gate_up = nn::FusedModule{"gate_up_proj", 1536};
  }
  return spec;
}

void check_parts_equal(Pair& pair, int size) {
  for (int rank = 0; rank < size; ++rank) {
    const nn::CausalLM separate = pair.loaded(pair.separate, {rank, size});
    const nn::CausalLM fused = pair.loaded(pair.fused, {rank, size});
    for (std::size_t u = 0; u < separate.store().units().size(); ++u) {
      CAPTURE(size, rank, u);
      CHECK(at::equal(fused.store().units()[u]->part(), separate.store().units()[u]->part()));
    }
  }
}

}  // namespace

TEST_CASE("fused checkpoints, interleaved or not, compute what separate modules do, to the bit") {
  for (const DType storage : {DType::kF32, DType::kBF16}) {
    Pair pair(toy_spec(), fused_toy_spec(), {.base_storage = storage, .compute = storage});
    CHECK(compare_weights(nn::CausalLM(pair.fused, pair.factory), pair.of_fused).complete());
    CHECK(pair.of_fused.find("transformer.h.0.attn.qkv.weight")->shape == std::vector<std::int64_t>{64, 24});
    CHECK(pair.of_fused.find("transformer.h.0.attn.qkv.bias")->shape == std::vector<std::int64_t>{64});
    CHECK(pair.of_fused.find("transformer.h.1.ffn.w13.bias")->shape == std::vector<std::int64_t>{40});
    CHECK(at::equal(logits(pair.loaded(pair.fused)), logits(pair.loaded(pair.separate))));
  }
}

TEST_CASE("ignoring the order of rows would change what a model computes") {
  Pair pair(toy_spec(), fused_toy_spec());
  nn::CausalLM model(uninterleaved_toy_spec(), pair.factory);
  model.store().allocate(at::kCPU);
  load_weights(model, pair.of_fused);
  CHECK_FALSE(at::allclose(logits(model), logits(pair.loaded(pair.separate)), 0.1, 0.1));
}

TEST_CASE("each process loads of a fused checkpoint the bytes that it would of separate modules") {
  Pair pair(toy_spec(), fused_toy_spec());
  for (const int size : {1, 2, 3}) check_parts_equal(pair, size);
}

TEST_CASE("rows by heads that span several pieces of the file are read whole and by parts") {
  Pair pair(wide_spec(false), wide_spec(true));
  REQUIRE(pair.of_fused.find("model.layers.0.self_attn.query_key_value.weight")->bytes.size() == 12U << 20);
  for (const int size : {1, 3}) check_parts_equal(pair, size);
}

TEST_CASE("digests of interleaved modules are those of the file, for any number of processes") {
  Pair pair(wide_spec(false), wide_spec(true));
  nn::CausalLM model(pair.fused, pair.factory);
  model.store().allocate(at::kCPU);
  const WeightDigests whole = load_and_digest_weights(model, pair.of_fused);
  for (const auto& [name, digest] : whole) CHECK(digest == io::digest_of(*pair.of_fused.find(name)));
  for (const int size : {2, 3}) {
    std::vector<std::string> texts;
    for (int rank = 0; rank < size; ++rank) {
      nn::CausalLM part(pair.fused, pair.factory);
      part.store().allocate(at::kCPU, {rank, size});
      texts.push_back(digests_text(load_and_digest_weights(part, pair.of_fused, {rank, size})));
    }
    CHECK((combine_digests(whole, texts, size) == whole));
  }
}

TEST_CASE("a value beyond the storage dtype's range is found in the last rows of an interleaved module") {
  Pair pair(toy_spec(), fused_toy_spec(), {.base_storage = DType::kF16});
  State state = fuse(toy_state(nn::CausalLM(toy_spec(), pair.factory), 7), pair.fused);
  state.at("transformer.h.0.attn.qkv.weight")[63][23] = 70000.0F;
  peft::TensorBytes tensors;
  for (const auto& [name, tensor] : state) tensors.add(name, tensor);
  io::write_safetensors(pair.folder / "model.safetensors", tensors.entries());
  nn::CausalLM model(pair.fused, pair.factory);
  model.store().allocate(at::kCPU);
  CHECK_THAT(error_text([&] { load_weights(model, io::Checkpoint::open(pair.folder.path())); }),
             Contains("'transformer.h.0.attn.qkv.weight' has 1 values beyond fp16's largest"));
}

TEST_CASE("numbers of heads that don't divide into the groups are an error that names the module") {
  nn::FrozenFactory factory(fp32_policy());
  nn::CausalLMSpec spec = fused_toy_spec();
  spec.layers[0].attention.fused_qkv->row_groups = 4;  // of 2 key-value heads
  CHECK_THAT(
      error_text([&] { nn::CausalLM(spec, factory); }),
      Contains("'transformer.h.0.attn.qkv' has 4 * (1 + 0 + 0) * 8 = 32 rows") && Contains("make 64 rows"));
  spec = fused_toy_spec();
  spec.layers[2].mlp.fused_gate_up->row_groups = 3;  // of 20 rows
  CHECK_THAT(error_text([&] { nn::CausalLM(spec, factory); }), Contains("'transformer.h.2.ffn.w13'"));
  spec.layers[2].mlp.fused_gate_up->row_groups = 0;
  CHECK_THAT(error_text([&] { nn::CausalLM(spec, factory); }), Contains("expected positive counts"));
}
