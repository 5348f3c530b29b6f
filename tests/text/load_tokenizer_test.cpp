#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "support/catch.h"
#include "support/paths.h"
#include "text/tokenize_lines.h"
#include "text/tokenizer.h"

namespace {

using lorikeet::text::load_tokenizer;

const std::string kTokenizer = R"({"version": "1.0", "added_tokens": [
    {"id": 3, "content": "<s>", "special": true}, {"id": 4, "content": "</s>", "special": true}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
    "decoder": {"type": "Fuse"}})";

class Folder {
 public:
  explicit Folder(const std::string& tokenizer_json = kTokenizer) { put("tokenizer.json", tokenizer_json); }
  void put(const std::string& name, const std::string& bytes) const {
    lorikeet::write_file_atomic(folder_ / name, bytes);
  }
  auto load() const { return load_tokenizer(folder_.path()); }

 private:
  lorikeet::test::TemporaryFolder folder_;
};

std::string run(const Folder& folder, const std::string& in,
                const lorikeet::text::TokenizeLinesOptions& options) {
  std::istringstream input(in);
  std::ostringstream output;
  lorikeet::text::tokenize_lines(*folder.load(), input, output, options);
  return output.str();
}

}  // namespace

TEST_CASE("a folder without a tokenizer, or with one that is another's, says so") {
  const lorikeet::test::TemporaryFolder empty;
  CHECK_THROWS_WITH(load_tokenizer(empty.path()), Catch::Contains("found neither"));
  lorikeet::write_file_atomic(empty / "tekken.json", "{}");
  CHECK_THROWS_WITH(load_tokenizer(empty.path()), Catch::Contains("tekken.json is not read"));
  lorikeet::write_file_atomic(empty / "tiktoken.model", "");
  CHECK_THROWS_WITH(load_tokenizer(empty.path()), Catch::Contains("tiktoken.model is not read"));
  lorikeet::write_file_atomic(empty / "tokenizer.model", "IQ== 0\nIg== 1\n");
  CHECK_THROWS_WITH(load_tokenizer(empty.path()), Catch::Contains("tiktoken"));
  lorikeet::write_file_atomic(empty / "tokenizer.model", "not a model");
  CHECK_THROWS_AS(load_tokenizer(empty.path()), lorikeet::Error);
  CHECK_THROWS_WITH(Folder("{").load(), Catch::Contains("tokenizer.json"));
  CHECK_THROWS_WITH(Folder("{}").load(), Catch::Contains("'model' is missing"));
}

TEST_CASE("the json wins over the model and says so") {
  const Folder folder;
  CHECK(folder.load()->description() == "tokenizer.json");
  folder.put("tokenizer.model", "whatever");
  CHECK(folder.load()->description().find("over tokenizer.model") != std::string::npos);
}

TEST_CASE("BOS and EOS come from the config's strings or objects, else from the special tokens map") {
  const Folder folder;
  CHECK_FALSE(folder.load()->bos_id());
  folder.put("special_tokens_map.json", R"({"bos_token": "</s>", "eos_token": {"content": "</s>"}})");
  CHECK(folder.load()->bos_id() == 4);
  folder.put("tokenizer_config.json",
             R"({"bos_token": "<s>", "model_max_length": 1000000000000000019884624838656})");
  CHECK(folder.load()->bos_id() == 3);
  CHECK(folder.load()->eos_id() == 4);
  folder.put("tokenizer_config.json", R"({"bos_token": 1})");
  CHECK_THROWS_WITH(folder.load(),
                    Catch::Contains("tokenizer_config.json: bos_token") && Catch::Contains("string"));
}

TEST_CASE("the chat template is a string, the default of a list, or a file that wins") {
  const Folder folder;
  CHECK_FALSE(folder.load()->chat_template());
  folder.put("tokenizer_config.json", R"({"chat_template": "one"})");
  CHECK(folder.load()->chat_template() == "one");
  folder.put("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "t"},
                                                              {"name": "default", "template": "two"}]})");
  CHECK(folder.load()->chat_template() == "two");
  folder.put("chat_template.jinja", "three\n");
  CHECK(folder.load()->chat_template() == "three\n");
}

TEST_CASE("a template that transformers' processors alone read is the tokenizer's where it has none") {
  const Folder folder;
  folder.put("processor_config.json", R"({"image_size": 4})");
  CHECK_FALSE(folder.load()->chat_template());
  folder.put("processor_config.json", R"({"chat_template": "of the processor"})");
  CHECK(folder.load()->chat_template() == "of the processor");
  folder.put("chat_template.json", R"({"chat_template": "beside it"})");
  CHECK(folder.load()->chat_template() == "beside it");
  folder.put("tokenizer_config.json", R"({"chat_template": "its own"})");
  CHECK(folder.load()->chat_template() == "its own");
}

TEST_CASE("the fingerprint changes with every file that decides ids") {
  const Folder folder;
  const std::string first = folder.load()->fingerprint();
  CHECK(first.size() == 64);
  CHECK(folder.load()->fingerprint() == first);
  folder.put("special_tokens_map.json", R"({"bos_token": "<s>"})");
  const std::string second = folder.load()->fingerprint();
  CHECK(second != first);
  folder.put("tokenizer.json", kTokenizer + "\n");
  CHECK(folder.load()->fingerprint() != second);
}

TEST_CASE("lines are converted both ways in their order") {
  const Folder folder;
  folder.put("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  std::string in;
  std::string expected;
  for (int i = 0; i < 5000; ++i) {
    in += i % 2 == 0 ? "\"ab\"\n" : "\"ba<s>\"\n";
    expected += i % 2 == 0 ? "[2]\n" : "[1,0,3]\n";
  }
  CHECK(run(folder, in, {.threads = 3}) == expected);
  CHECK(run(folder, "\"ab\"\n\"\"", {.bos_eos = true}) == "[3,2,4]\n[3,4]\n");
  CHECK(run(folder, "[3,2,1]\n", {.decode = true}) == "\"<s>abb\"\n");
  CHECK(run(folder, "[3,2,1]\n", {.decode = true, .specials = false}) == "\"abb\"\n");
  CHECK_THROWS_WITH(run(folder, "\"a\"\n7\n", {}), Catch::Contains("line 2") && Catch::Contains("string"));
  CHECK_THROWS_WITH(run(folder, "[9]\n", {.decode = true}), Catch::Contains("no token with id 9"));
  CHECK_THROWS_WITH(run(Folder(), "\"a\"\n", {.bos_eos = true}), Catch::Contains("names no BOS"));
}
