// Ids and text that the `tokenizers` and `sentencepiece` packages gave, from tests/parity/goldens/tokenizer
// (written by tests/parity/make_tokenizer_goldens.py).
#include <filesystem>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "support/catch.h"
#include "support/paths.h"
#include "text/tokenizer.h"

namespace {

using lorikeet::Json;
using lorikeet::text::TokenId;

std::vector<Json> read_lines(const std::filesystem::path& path) {
  std::vector<Json> rows;
  std::istringstream in(lorikeet::read_file(path));
  for (std::string line; std::getline(in, line);) rows.push_back(Json::parse(line, path.string()));
  return rows;
}

std::vector<TokenId> ids_of(const Json& json) {
  std::vector<TokenId> ids;
  for (const Json& id : json.array()) ids.push_back(static_cast<TokenId>(id.integer()));
  return ids;
}

// Blocks of text and lines of ids, as llama.cpp keeps its tokenizer tests.
void check_llama_cpp_golden(const std::string& folder, const std::string& golden) {
  const auto tokenizer_folder = lorikeet::test::shared_data(folder);
  const auto input = lorikeet::test::shared_data("tokenizers/goldens/" + golden + ".inp");
  const auto output = lorikeet::test::shared_data("tokenizers/goldens/" + golden + ".out");
  if (!tokenizer_folder || !input || !output) {
    WARN("shared data is not there");
    return;
  }
  const auto tokenizer = lorikeet::text::load_tokenizer(*tokenizer_folder);
  const std::string separator = "\n__ggml_vocab_test__\n";
  const std::string text = lorikeet::read_file(*input);
  std::istringstream lines(lorikeet::read_file(*output));
  std::size_t begin = 0;
  std::size_t blocks = 0;
  for (std::string line; begin < text.size() && std::getline(lines, line); ++blocks) {
    const std::size_t end = text.find(separator, begin);
    if (end == std::string::npos) break;
    std::vector<TokenId> expected;
    std::istringstream numbers(line);
    for (TokenId id = 0; numbers >> id;) expected.push_back(id);
    INFO(text.substr(begin, end - begin));
    CHECK(tokenizer->encode(text.substr(begin, end - begin), {.add_special_tokens = false}) == expected);
    begin = end + separator.size();
  }
  CHECK(blocks >= 40);
}

}  // namespace

TEST_CASE("every golden tokenizer gives the packages' ids and text") {
  const auto root = lorikeet::test::source_dir() / "tests/parity/goldens/tokenizer";
  const auto strings = read_lines(root / "strings.jsonl");
  REQUIRE(strings.size() >= 200);
  std::size_t kinds = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (!entry.is_directory()) continue;
    ++kinds;
    const auto tokenizer = lorikeet::text::load_tokenizer(entry.path());
    const auto expected = read_lines(entry.path() / "ids.jsonl");
    const auto decoded = read_lines(entry.path() / "decoded.jsonl");
    REQUIRE(expected.size() == strings.size());
    for (std::size_t i = 0; i < strings.size(); ++i) {
      INFO(entry.path().filename().string() << ": " << strings[i].dump());
      const auto ids = tokenizer->encode(strings[i].string());
      CHECK(ids == ids_of(expected[i]));
      CHECK(tokenizer->decode(ids, false) == decoded[i].string());
    }
  }
  CHECK(kinds == 12);
}

TEST_CASE("Llama 2's real tokenizer.json gives the published ids") {
  check_llama_cpp_golden("tokenizers/llama2", "ggml-vocab-llama-spm.gguf");
}

TEST_CASE("Llama 2's tokenizer.json and tokenizer.model give the same ids for plain text") {
  const auto folder = lorikeet::test::shared_data("tokenizers/llama2");
  if (!folder) {
    WARN("shared data is not there");
    return;
  }
  const lorikeet::test::TemporaryFolder only_model;
  std::filesystem::copy_file(*folder / "tokenizer.model", only_model / "tokenizer.model");
  const auto by_json = lorikeet::text::load_tokenizer(*folder);
  const auto by_model = lorikeet::text::load_tokenizer(only_model.path());
  const auto strings =
      read_lines(lorikeet::test::source_dir() / "tests/parity/goldens/tokenizer/strings.jsonl");
  std::size_t compared = 0;
  for (const Json& string : strings) {
    const std::string& text = string.string();
    // Special tokens follow other rules in the two files, and sentencepiece drops NULs and some spaces.
    if (text.find('<') != std::string::npos || text.find('\0') != std::string::npos) continue;
    INFO(string.dump());
    CHECK(by_json->encode(text) == by_model->encode(text));
    ++compared;
  }
  CHECK(compared > 150);
}
