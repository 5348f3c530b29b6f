// Files of adapters beside experts: of a shared expert's modules, which are called as the routed experts'
// are.
#include <ATen/ATen.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "peft/adapter_file.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using namespace lorikeet::peft;
using namespace lorikeet::test;
using Catch::Contains;

namespace {

const std::string kBlock = "transformer.h.4.ffn.";

ToyLora toy_of(const LoraConfig& config) { return ToyLora(config, fp32_policy(), {}, toy_forms_spec()); }

std::size_t count_modules(const ToyLora& toy, const std::string& prefix) {
  std::size_t count = 0;
  for (const auto& module : toy.adapters.modules()) count += module.name.starts_with(prefix) ? 1 : 0;
  return count;
}

std::vector<std::string> targets(const std::filesystem::path& folder) {
  const Json json = Json::parse(read_file(folder / "adapter_config.json"), "adapter_config.json");
  std::vector<std::string> names;
  for (const JsonView& name : JsonView(json, "adapter_config.json").at("target_modules").items())
    names.push_back(name.as_string());
  return names;
}

void write_targets(const std::filesystem::path& folder, const std::vector<std::string>& names) {
  Json json = Json::parse(read_file(folder / "adapter_config.json"), "adapter_config.json");
  json.set("target_modules", Json::Array(names.begin(), names.end()));
  write_file_atomic(folder / "adapter_config.json", json.dump(2));
}

}  // namespace

TEST_CASE("all-linear means a shared expert's modules, not the routed ones', and not its gate") {
  const ToyLora toy = toy_of({.rank = 2});
  CHECK(count_modules(toy, kBlock + "shared.") == 3);
  CHECK(count_modules(toy, kBlock) == 3);
}

TEST_CASE("a name means the modules of all experts, one with its expert those of that one alone") {
  CHECK(count_modules(toy_of({.rank = 2, .target_modules = {"w2"}}), kBlock) == 4);
  CHECK(count_modules(toy_of({.rank = 2, .target_modules = {"shared.w2"}}), kBlock) == 1);
  CHECK(error_text([] {
          toy_of({.rank = 2, .target_modules = {"shared_gate"}}).adapters.require_matches();
        }) != "no error");
}

TEST_CASE("all-linear beside experts is written as whole names, which mean no more than was adapted") {
  const TemporaryFolder folder;
  const ToyLora toy = toy_of({.rank = 2});
  save_adapter(folder.path(), toy.adapters, "base");
  const auto names = targets(folder.path());
  CHECK(names.size() == toy.adapters.modules().size());
  CHECK(std::find(names.begin(), names.end(), kBlock + "shared.w2") != names.end());
  ToyLora other = toy_of(load_adapter_config(folder.path()));
  load_adapter(folder.path(), other.adapters);
  CHECK(at::equal(other.adapters.store().values(), toy.adapters.store().values()));
  // Names that were given are kept: they mean all experts.
  const ToyLora named = toy_of({.rank = 2, .target_modules = {"w1", "w2", "w3"}});
  save_adapter(folder.path(), named.adapters, "base");
  CHECK(targets(folder.path()) == std::vector<std::string>{"w1", "w2", "w3"});
}

TEST_CASE("a file whose names would mean experts that it has no tensors of has the shared one's alone") {
  // As PEFT writes it on transformers 5, where routed experts are no modules.
  const TemporaryFolder folder;
  const ToyLora toy = toy_of({.rank = 2, .target_modules = {"dense", "shared.w1", "shared.w2"}});
  save_adapter(folder.path(), toy.adapters, "base");
  write_targets(folder.path(), {"dense", "h.4.ffn.w1", "shared.w1", "shared.w2", "experts.0.w2"});
  const LoraConfig config = load_adapter_config(folder.path());
  CHECK(config.modules_in_file.contains(kBlock + "shared.w1"));
  ToyLora other = toy_of(config);
  CHECK(count_modules(other, kBlock) == 2);
  load_adapter(folder.path(), other.adapters);
  CHECK(at::equal(other.adapters.store().values(), toy.adapters.store().values()));
}

TEST_CASE("a file with tensors of one expert has to have those of all that its names mean") {
  const TemporaryFolder folder;
  const ToyLora toy = toy_of({.rank = 2, .target_modules = {"experts.1.w2"}});
  save_adapter(folder.path(), toy.adapters, "base");
  write_targets(folder.path(), {"experts.1.w2", "experts.2.w2"});
  ToyLora other = toy_of(load_adapter_config(folder.path()));
  CHECK(count_modules(other, kBlock) == 2);
  CHECK_THAT(error_text([&] { load_adapter(folder.path(), other.adapters); }),
             Contains("2 tensors are missing"));
}
