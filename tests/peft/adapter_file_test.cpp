#include "peft/adapter_file.h"

#include <ATen/ATen.h>

#include <limits>

#include "io/safetensors.h"
#include "models/toy_fused.h"
#include "peft/target_rules.h"
#include "peft/tensor_bytes.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::peft;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

const LoraConfig kConfig{.rank = 2, .alpha = 4, .target_modules = {"query", "w2"}};
const std::string kName = "base_model.model.transformer.h.0.attn.query.lora_A.weight";

// The tensors of a saved adapter, as a state that a test may spoil and write again.
State saved(const TemporaryFolder& folder, const ToyLora& toy) {
  save_adapter(folder.path(), toy.adapters, "base");
  State state;
  const AdapterStore& store = toy.adapters.store();
  for (std::size_t i = 0; i < store.size(); ++i) {
    state["base_model.model." + store.segment(i).name] = store.value(i).clone();
  }
  return state;
}

void rewrite(const TemporaryFolder& folder, const State& state) {
  TensorBytes tensors;
  for (const auto& [name, tensor] : state) tensors.add(name, tensor);
  io::write_safetensors(folder / "adapter_model.safetensors", tensors.entries());
}

// The error of loading into other adapters, whose values must be left alone by it.
std::string load_error(const TemporaryFolder& folder, ErrorKind kind = ErrorKind::kUsage) {
  ToyLora other(kConfig);
  other.randomize(99);
  const at::Tensor before = other.adapters.store().values().clone();
  const std::string error = error_text([&] { load_adapter(folder.path(), other.adapters); }, kind);
  CHECK(at::equal(other.adapters.store().values(), before) == (error != "no error"));
  return error;
}

}  // namespace

TEST_CASE("a saved adapter loads to the bit, in the compute dtype too") {
  const TemporaryFolder folder;
  const precision::Policy policy;  // bf16 compute
  const ToyLora toy(kConfig, policy);
  save_adapter(folder.path(), toy.adapters, "base");
  ToyLora other(kConfig, policy);
  other.randomize(99);
  load_adapter(folder.path(), other.adapters);
  const AdapterStore& from = toy.adapters.store();
  const AdapterStore& to = other.adapters.store();
  CHECK(at::equal(from.values(), to.values()));
  for (std::size_t i = 0; i < to.size(); ++i) CHECK(at::equal(from.compute(i), to.compute(i)));

  const LoraConfig config = load_adapter_config(folder.path());
  CHECK(config.rank == 2);
  CHECK(config.target_modules == kConfig.target_modules);
}

TEST_CASE("an adapter's fingerprint is that of its values and scales, whatever its folder and its names") {
  const TemporaryFolder folder, copy;
  const ToyLora toy(kConfig);
  State state = saved(folder, toy);
  const auto of = [&](const TemporaryFolder& where) {
    return adapter_fingerprint(where.path(), toy.adapters);
  };
  const std::string fingerprint = of(folder);
  save_adapter(copy.path(), toy.adapters, "another name of the base");
  CHECK(of(copy) == fingerprint);

  SECTION("another value") {
    state.at(kName).view(-1)[0].add_(1);
    rewrite(copy, state);
    CHECK(of(copy) != fingerprint);
  }
  SECTION("another scale") {
    LoraConfig config = kConfig;
    config.alpha = 8;
    save_adapter(copy.path(), ToyLora(config).adapters, "base");
    CHECK(of(copy) != fingerprint);
  }
  SECTION("one that doesn't fit") {
    state.erase(kName);
    rewrite(copy, state);
    CHECK(of(copy) != fingerprint);
  }
}

// As "blocks" and "projections" of an older version's.
const io::CheckpointNames kOlder{.prefixes = {{"transformer.h.", "old.blocks."}, {"output.", "projection."}}};

std::string older_name(std::string name) {
  for (const auto& [model, file] : kOlder.prefixes) {
    const std::size_t at = name.find("base_model.model." + model);
    if (at == 0) name = "base_model.model." + file + name.substr(17 + model.size());
  }
  return name;
}

TEST_CASE("an adapter with an older version's names loads to the bit") {
  const TemporaryFolder folder;
  LoraConfig config = kConfig;
  config.target_modules.push_back("output");
  const ToyLora toy(config);
  State older;
  for (const auto& [name, tensor] : saved(folder, toy)) older[older_name(name)] = tensor;
  CHECK(older.contains("base_model.model.old.blocks.0.attn.query.lora_A.weight"));
  CHECK(older.contains("base_model.model.projection.lora_A.weight"));
  rewrite(folder, older);
  ToyLora unknowing(config);
  CHECK_THAT(error_text([&] { load_adapter(folder.path(), unknowing.adapters); }), Contains("are missing"));
  config.checkpoint_names = kOlder;
  ToyLora other(config);
  other.randomize(99);
  require_adapter_fits(folder.path(), other.adapters);
  load_adapter(folder.path(), other.adapters);
  CHECK(at::equal(toy.adapters.store().values(), other.adapters.store().values()));
  // Both at once say nothing sure.
  older["base_model.model.output.lora_A.weight"] = older.at("base_model.model.projection.lora_A.weight");
  rewrite(folder, older);
  CHECK_THAT(error_text([&] { load_adapter(folder.path(), other.adapters); }), Contains("under two names"));
}

TEST_CASE("an adapter file's older names of modules mean this model's, in a user's settings they don't") {
  LoraConfig config{.rank = 2,
                    .target_modules = {"old.blocks.1.attn.query", "projection"},
                    .rank_pattern = {{"old.blocks.1.attn.query", 4}},
                    .modules_to_save = {},
                    .checkpoint_names = kOlder,
                    .from_file = true};
  const ToyLora named(config);
  REQUIRE(named.adapters.modules().size() == 2);
  CHECK(named.adapters.modules()[0].name == "transformer.h.1.attn.query");
  CHECK(TargetRules(config).rank("transformer.h.1.attn.query") == 4);
  CHECK(TargetRules(config).rank("transformer.h.2.attn.query") == 2);
  named.adapters.require_matches();
  config.target_modules = {R"(old\.blocks\.\d\.attn\.query)"};
  CHECK(ToyLora(config).adapters.modules().size() == 3);
  config.target_modules = {"query"};
  config.modules_to_save = {"projection"};
  CHECK(ToyLora(config).adapters.tables().size() == 1);
  config.modules_to_save = {};
  config.target_modules = {"old.blocks.1.attn.query"};
  config.from_file = false;
  CHECK(ToyLora(config).adapters.modules().empty());
}

TEST_CASE("tensors are written under PEFT's names in the adapter's dtype") {
  const TemporaryFolder folder;
  const ToyLora toy(kConfig);
  save_adapter(folder.path(), toy.adapters, "base");
  const auto file = io::SafetensorsFile::open(folder / "adapter_model.safetensors");
  CHECK(file.tensors().size() == 12);
  CHECK(file.metadata().at("format") == "pt");
  const io::TensorView* a = file.find(kName);
  REQUIRE(a != nullptr);
  CHECK(a->shape == std::vector<std::int64_t>{2, 24});
  CHECK(a->dtype == DType::kF32);
}

TEST_CASE("an embedding's adapter and trained tables are written as PEFT has them, and read back") {
  const LoraConfig config{
      .rank = 2, .alpha = 4, .target_modules = {"wte", "query"}, .modules_to_save = {"output"}};
  const TemporaryFolder folder;
  const ToyLora toy(config);
  save_adapter(folder.path(), toy.adapters, "base");
  const auto file = io::SafetensorsFile::open(folder / "adapter_model.safetensors");
  const auto shape = [&](const std::string& name) {
    const io::TensorView* tensor = file.find("base_model.model." + name);
    return tensor == nullptr ? std::vector<std::int64_t>{} : tensor->shape;
  };
  CHECK(shape("transformer.wte.lora_embedding_A") == std::vector<std::int64_t>{2, 37});
  CHECK(shape("transformer.wte.lora_embedding_B") == std::vector<std::int64_t>{24, 2});
  CHECK(shape("output.weight") == std::vector<std::int64_t>{37, 24});
  const LoraConfig found = load_adapter_config(folder.path());
  CHECK(found.modules_to_save == std::vector<std::string>{"output"});
  CHECK(found.table_rows == 37);
  CHECK_FALSE(found.ensure_weight_tying);

  ToyLora other(found);
  other.randomize(99);
  load_adapter(folder.path(), other.adapters);
  CHECK(at::equal(other.adapters.store().values(), toy.adapters.store().values()));
}

TEST_CASE("a table that the head shares is written under both names, as PEFT does") {
  nn::CausalLMSpec spec = toy_spec();
  spec.shape.tied_head = true;
  const LoraConfig config{.rank = 2, .modules_to_save = {"output"}, .ensure_weight_tying = true};
  const TemporaryFolder folder;
  const ToyLora toy(config, fp32_policy(), {}, spec);
  save_adapter(folder.path(), toy.adapters, "base");
  const LoraConfig found = load_adapter_config(folder.path());
  CHECK(found.modules_to_save == std::vector<std::string>{"output", "wte"});
  CHECK(found.ensure_weight_tying);
  ToyLora other(found, fp32_policy(), {}, spec);
  other.randomize(99);
  load_adapter(folder.path(), other.adapters);
  CHECK(at::equal(other.adapters.store().values(), toy.adapters.store().values()));

  // Two tables under the names of one: which of them was meant can't be known.
  State state;
  const auto file = io::SafetensorsFile::open(folder / "adapter_model.safetensors");
  for (const io::TensorView& tensor : file.tensors()) {
    at::Tensor value = at::empty(tensor.shape);
    copy_into({tensor.name, tensor.dtype, tensor.shape}, tensor.bytes, value, "test");
    state[tensor.name] = value;
  }
  state.at("base_model.model.output.weight")[3][4] += 1;
  rewrite(folder, state);
  CHECK_THAT(error_text([&] { load_adapter(folder.path(), other.adapters); }),
             Contains("output.weight") && Contains("ensure_weight_tying"));
}

TEST_CASE("PEFT's copy of the base's table beside an adapter is held against the base") {
  const LoraConfig config{.rank = 2, .alpha = 4, .target_modules = {"output", "query"}};
  const TemporaryFolder folder;
  ToyLora toy(config);
  State state = saved(folder, toy);
  const std::string name = "base_model.model.output.base_layer.weight";
  state[name] = toy.state.at("output.weight").to(at::kBFloat16);
  rewrite(folder, state);
  load_adapter(folder.path(), toy.adapters);
  require_same_base(folder.path(), toy.adapters, toy.model.store());
  state[name] = state[name] * 1.5;
  rewrite(folder, state);
  CHECK_THAT(error_text([&] { require_same_base(folder.path(), toy.adapters, toy.model.store()); }),
             Contains(name) && Contains("another base"));
}

TEST_CASE("rows of an interleaved module's B are written and read in the checkpoint's order") {
  const TemporaryFolder folder;
  const LoraConfig config{.rank = 2, .alpha = 4, .target_modules = {"h.0.attn.qkv"}};
  ToyLora toy(config, fp32_policy(), {}, fused_toy_spec());
  AdapterStore& store = toy.adapters.store();
  const auto& module = toy.adapters.modules().at(0);
  // Row i of [queries | keys | values] holds 10 i and 10 i + 1.
  const at::Tensor tens = 10 * at::arange(64);
  store.value(module.b).copy_(at::stack({tens, tens + 1}, 1));
  store.refresh_compute();
  save_adapter(folder.path(), toy.adapters, "base");

  const auto file = io::SafetensorsFile::open(folder / "adapter_model.safetensors");
  const std::string name = "base_model.model.transformer.h.0.attn.qkv.";
  REQUIRE(file.tensors().size() == 2);
  const io::TensorView& b = *file.find(name + "lora_B.weight");
  REQUIRE(b.shape == std::vector<std::int64_t>{64, 2});
  // numpy: q, k, v = numpy.split(numpy.arange(64), [32, 48])
  //        numpy.concatenate([q.reshape(2, 16), k.reshape(2, 8), v.reshape(2, 8)], axis=1).ravel()
  const std::vector<float> rows{0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                32, 33, 34, 35, 36, 37, 38, 39, 48, 49, 50, 51, 52, 53, 54, 55,
                                16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
                                40, 41, 42, 43, 44, 45, 46, 47, 56, 57, 58, 59, 60, 61, 62, 63};
  const at::Tensor expected = 10 * at::tensor(rows);
  const at::Tensor written = at::empty({64, 2});
  copy_into({b.name, b.dtype, b.shape}, b.bytes, written, "file");
  CHECK(at::equal(written.select(1, 0), expected));
  CHECK(at::equal(written.select(1, 1), expected + 1));
  const at::Tensor a = at::empty({2, 24});
  copy_into({name, DType::kF32, {2, 24}}, file.find(name + "lora_A.weight")->bytes, a, "file");
  CHECK(at::equal(a, store.value(module.a)));

  ToyLora other(config, fp32_policy(), {}, fused_toy_spec());
  other.randomize(99);
  load_adapter(folder.path(), other.adapters);
  CHECK(at::equal(other.adapters.store().values(), store.values()));
  // A model that takes the rows for its group's order reads other values.
  ToyLora wrong(config, fp32_policy(), {}, uninterleaved_toy_spec());
  load_adapter(folder.path(), wrong.adapters);
  CHECK_FALSE(at::equal(wrong.adapters.store().values(), store.values()));
}

TEST_CASE("an adapter for single modules loads into a model made from its own settings") {
  const TemporaryFolder folder;
  const ToyLora toy({.rank = 2, .alpha = 4, .target_modules = {"h.1.ffn.w2"}});
  save_adapter(folder.path(), toy.adapters, "base");
  ToyLora other(load_adapter_config(folder.path()));
  load_adapter(folder.path(), other.adapters);
  CHECK(at::equal(other.adapters.store().values(), toy.adapters.store().values()));
}

TEST_CASE("missing, misspelt, misshaped and cut tensors are errors that change nothing") {
  const TemporaryFolder folder;
  const ToyLora toy(kConfig);
  const State good = saved(folder, toy);
  rewrite(folder, good);
  CHECK(load_error(folder) == "no error");

  State state = good;
  state.erase(kName);
  rewrite(folder, state);
  CHECK_THAT(load_error(folder),
             Contains("1 tensor is missing (first: " + kName + ")") && !Contains("unexpected"));

  state["base_model.model.transformer.h.0.attn.qurey.lora_A.weight"] = good.at(kName);
  rewrite(folder, state);
  CHECK_THAT(load_error(folder), Contains("1 tensor is missing") &&
                                     Contains("1 tensor is unexpected (first: ") && Contains("qurey"));

  state = good;
  state[kName] = at::zeros({24, 2});
  rewrite(folder, state);
  CHECK_THAT(load_error(folder), Contains(kName) && Contains("expected shape [2, 24], got [24, 2]"));

  state[kName] = at::zeros({2, 24}, at::kLong);
  rewrite(folder, state);
  CHECK_THAT(load_error(folder), Contains(kName) && Contains("expected a floating dtype, got int64"));

  rewrite(folder, good);
  const std::string bytes = read_file(folder / "adapter_model.safetensors");
  write_file_atomic(folder / "adapter_model.safetensors", bytes.substr(0, bytes.size() - 1));
  CHECK_THAT(load_error(folder), Contains("adapter_model.safetensors"));
}

TEST_CASE("values that are NaN or infinite are an error that names the tensor and changes nothing") {
  const TemporaryFolder folder;
  const ToyLora toy(kConfig);
  for (const double value :
       {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
    State state = saved(folder, toy);
    state.at(kName)[1][23] = value;
    rewrite(folder, state);
    CHECK_THAT(load_error(folder, ErrorKind::kRunFailed), Contains(kName) && Contains("NaN or infinite"));
  }
}

TEST_CASE("a rank that the file's tensors don't have is found before anything is allocated") {
  const TemporaryFolder folder;
  const ToyLora toy(kConfig);
  rewrite(folder, saved(folder, toy));
  peft::LoraConfig absurd = kConfig;
  absurd.rank = 65536;
  peft::LoraAdapters adapters(absurd, fp32_policy(), 0);
  peft::LoraFactory factory(fp32_policy(), adapters);
  const nn::CausalLM model(toy_spec(), factory);
  CHECK_THAT(error_text([&] { peft::require_adapter_fits(folder.path(), adapters); }),
             Contains("have another shape (first: ") && Contains("expected shape [65536, "));
  CHECK_FALSE(adapters.store().values().defined());
}

TEST_CASE("a folder without an adapter is an error") {
  const TemporaryFolder folder;
  CHECK_THAT(error_text([&] { load_adapter_config(folder.path()); }),
             Contains("has no adapter_config.json; expected a PEFT adapter folder"));
}

TEST_CASE("going on from an adapter asks for the same rank, alpha, scaling and targets") {
  const auto error = [](const LoraConfig& found) {
    return error_text([&] { require_same_settings(kConfig, found, "folder"); });
  };
  LoraConfig found = kConfig;
  CHECK(error(found) == "no error");
  found.dropout = 0.5;  // may change from run to run
  found.target_modules = {"w2", "query"};
  CHECK(error(found) == "no error");
  found.target_modules = {"all-linear"};
  CHECK(error(found) == "no error");
  found.target_modules = {"query"};
  CHECK_THAT(error(found), Contains("lora.target_modules is [query, w2]") && Contains("[query] in 'folder'"));
  found = kConfig;
  found.rank = 3;
  CHECK_THAT(error(found), Contains("lora.rank is 2 in the config and 3 in 'folder'"));
  found = kConfig;
  found.alpha = 4.5;
  CHECK_THAT(error(found), Contains("lora.alpha") && Contains("4.5"));
  found = kConfig;
  found.use_rslora = true;
  CHECK_THAT(error(found), Contains("lora.use_rslora is false in the config and true"));
  found.rank = 3;
  CHECK_THAT(error(found), Contains("lora.rank is 2") && Contains("; lora.use_rslora is false"));
}

TEST_CASE(
    "an adapter that starts from the base is written as a plain one of twice the rank, but for the "
    "embedding") {
  const nn::Batch batch = nn::pack_sequences(toy_prompts(), {}, at::kCPU);
  for (const auto& [rslora, targets] :
       {std::pair{false, "all-linear"}, {true, "all-linear"}, {false, ".*"}, {true, ".*"}}) {
    const LoraConfig config{.rank = 3,
                            .alpha = 5,
                            .use_dora = rslora,
                            .starts_from_base = true,
                            .use_rslora = rslora,
                            .target_modules = {targets},
                            .rank_pattern = {{"h.1.attn.qkv", 2}},
                            .alpha_pattern = {{"w2", 7}}};
    const TemporaryFolder folder;
    const ToyLora toy(config, fp32_policy(), {}, fused_toy_spec());
    save_adapter(folder.path(), toy.adapters, "base");
    const LoraConfig plain = load_adapter_config(folder.path());
    CHECK(plain.rank == 6);
    CHECK_FALSE(plain.starts_from_base);
    ToyLora loaded(plain, fp32_policy(), {}, fused_toy_spec());
    load_adapter(folder.path(), loaded.adapters);
    CHECK(relative_error(loaded.model.logits({.batch = batch}), toy.model.logits({.batch = batch})) < 1e-6);

    ToyLora resumed(config, fp32_policy(), {}, fused_toy_spec());
    resumed.randomize(99);
    load_adapter(folder.path(), resumed.adapters);
    CHECK(at::equal(resumed.adapters.store().all_values(), toy.adapters.store().all_values()));
  }
}
