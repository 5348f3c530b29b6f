#include "text/new_tokens.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::text;

namespace {

const std::string kTokenizer = R"({"version": "1.0", "added_tokens": [
    {"id": 3, "content": "<s>", "special": true}, {"id": 4, "content": "</s>", "special": true}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
    "decoder": {"type": "Fuse"}, "padding": 1e31})";

using test::TemporaryFolder;

struct Folder : TemporaryFolder {
  Folder() { write_file_atomic(*this / "tokenizer.json", kTokenizer); }
};

}  // namespace

TEST_CASE("new tokens follow the tokenizer's own, words first, and what it has stays") {
  const Folder folder;
  const auto [tokenizer, added] =
      load_tokenizer_with(folder.path(), {.words = {"ba", "ab"}, .special = {"<call>", "<s>"}});
  REQUIRE(added.size() == 2);
  CHECK(tokenizer->vocab_size() == 7);
  CHECK(tokenizer->id_of("ba") == 5);
  CHECK(tokenizer->id_of("<call>") == 6);
  CHECK_FALSE(tokenizer->is_special(5));
  CHECK(tokenizer->is_special(6));
  CHECK(tokenizer->encode("abab", {}) == std::vector<TokenId>{0, 5, 1});
  CHECK(tokenizer->fingerprint() != load_tokenizer(folder.path())->fingerprint());
}

TEST_CASE("a special one is not read in text that may not speak control tokens, a word is") {
  const Folder folder;
  const auto tokenizer = load_tokenizer_with(folder.path(), {.words = {"ba"}, .special = {"bb"}}).tokenizer;
  CHECK(tokenizer->encode("babb", {.parse_special = true}) == std::vector<TokenId>{5, 6});
  CHECK(tokenizer->encode("babb", {.parse_special = false}) == std::vector<TokenId>{5, 1, 1});
}

TEST_CASE("files with new tokens load as the same tokenizer, and are otherwise as they were") {
  const Folder folder;
  const auto [tokenizer, added] = load_tokenizer_with(folder.path(), {.words = {"ba"}, .special = {"<x>"}});
  const std::string json = tokenizer_json_with(kTokenizer, added);
  CHECK(json.find(R"("padding": 1e31})") != std::string::npos);
  write_file_atomic(folder / "tokenizer.json", json);
  write_file_atomic(folder / "tokenizer_config.json",
                    tokenizer_config_with(R"({"model_max_length": 1000000000000000019884624838656})", added));
  const auto loaded = load_tokenizer(folder.path());
  CHECK(loaded->encode("aba<x>", {}) == tokenizer->encode("aba<x>", {}));
  CHECK(loaded->vocab_size() == 7);
  const std::string config = read_file(folder / "tokenizer_config.json");
  CHECK(config.find("1000000000000000019884624838656") != std::string::npos);
  const Json parsed = Json::parse(config, "test");
  CHECK(JsonView(parsed, "test").at("added_tokens_decoder").at("6").at("content").as_string() == "<x>");
}

TEST_CASE("a word that the normaliser puts a mark before is refused, a control token isn't") {
  const TemporaryFolder folder;
  const auto load = [&](const std::string& normalizer, const NewTokens& tokens) {
    std::string json = kTokenizer;
    json.insert(1, R"("normalizer": )" + normalizer + ",");
    write_file_atomic(folder / "tokenizer.json", json);
    return load_tokenizer_with(folder.path(), tokens).tokenizer;
  };
  const std::string llama2 = R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})";
  CHECK_THROWS_WITH(load(llama2, {.words = {"ba"}}),
                    Catch::Contains("[model.add_tokens]") && Catch::Contains("'▁ba'") &&
                        Catch::Contains("model.add_special_tokens") && Catch::Contains("Metaspace"));
  CHECK(load(llama2, {.special = {"ba"}})->id_of("ba") == 5);
  CHECK(load(R"({"type": "NFC"})", {.words = {"ba"}})->encode("aba", {}) == std::vector<TokenId>{0, 5});
  CHECK(load(R"({"type": "Lowercase"})", {.words = {"BA"}})->encode("aba", {}) == std::vector<TokenId>{0, 5});
}

TEST_CASE("tokens without text, and tokens named twice, are errors that name the setting") {
  const Folder folder;
  const auto load = [&](const NewTokens& tokens) { load_tokenizer_with(folder.path(), tokens); };
  CHECK_THROWS_WITH(load({.words = {""}}), Catch::Contains("[model.add_tokens]"));
  CHECK_THROWS_WITH(load({.words = {"x"}, .special = {"x"}}),
                    Catch::Contains("[model.add_special_tokens]") && Catch::Contains("twice"));
}
