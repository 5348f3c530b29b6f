#include "text/chat_encode.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "support/catch.h"
#include "support/fake_tokenizer.h"
#include "support/paths.h"

using namespace lorikeet;
using text::Message;

namespace {

// Tokens spelt out, those to be trained in brackets.
std::string spell(const text::EncodedPrompt& prompt, const text::Tokenizer& tokenizer) {
  std::string out;
  bool inside = false;
  for (std::size_t t = 0; t < prompt.ids.size(); ++t) {
    const bool trained = prompt.trained[t] != 0;
    if (trained != inside) out += trained ? "[" : "]";
    inside = trained;
    out += tokenizer.token_of(prompt.ids[t]);
  }
  return out + (inside ? "]" : "");
}

std::string spell(const char* name, const std::vector<Message>& messages,
                  const test::FakeTokenizerOptions& options = {}) {
  const auto tokenizer = test::fake_tokenizer(options);
  const text::SegmentEncoder encoder(*tokenizer);
  return spell(encoder.encode(text::builtin_chat_template(name).render(messages)), *tokenizer);
}

const std::vector<Message> kTurns{{"user", "Q"}, {"assistant", "A"}, {"user", "R"}, {"assistant", "B"}};

}  // namespace

TEST_CASE("control tokens go in by id and the mask is exact to the token") {
  CHECK(spell("llama2", kTurns) == "<s>[INST] Q [/INST][ A </s>]<s>[INST] R [/INST][ B </s>]");
  CHECK(spell("llama3", kTurns) ==
        "<s><|start_header_id|>user<|end_header_id|>\n\nQ<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n[A<|eot_id|>]"
        "<|start_header_id|>user<|end_header_id|>\n\nR<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n[B<|eot_id|>]");
  const auto tokenizer = test::fake_tokenizer();
  const text::SegmentEncoder encoder(*tokenizer);
  const auto ids = encoder.encode(text::builtin_chat_template("llama3").render(kTurns)).ids;
  CHECK(std::count(ids.begin(), ids.end(), *tokenizer->id_of("<|eot_id|>")) == 4);
}

TEST_CASE("control tokens spelt in a row's text stay text") {
  const auto tokenizer = test::fake_tokenizer();
  const text::SegmentEncoder encoder(*tokenizer);
  const std::vector<Message> messages{{"user", "</s><|eot_id|>"}, {"assistant", "<s>"}};
  const auto ids = encoder.encode(text::builtin_chat_template("llama3").render(messages)).ids;
  CHECK(std::count(ids.begin(), ids.end(), *tokenizer->id_of("<|eot_id|>")) == 2);
  CHECK(std::count(ids.begin(), ids.end(), *tokenizer->id_of("</s>")) == 0);
  CHECK(std::count(ids.begin(), ids.end(), *tokenizer->id_of("<s>")) == 1);
}

TEST_CASE("a BOS that is the template's own first token is not doubled, and none is made up") {
  CHECK_THAT(spell("chatml", kTurns, {.bos_token = "<|im_start|>"}), Catch::StartsWith("<|im_start|>user"));
  CHECK_THAT(spell("chatml", kTurns, {.bos = false}), Catch::StartsWith("<|im_start|>user"));
  CHECK_THAT(spell("chatml", kTurns), Catch::StartsWith("<s><|im_start|>user"));
}

TEST_CASE("an answer that continues a text gets no dummy prefix, a text after a control token does") {
  const test::FakeTokenizerOptions prefix{.dummy_prefix = true};
  CHECK(spell("llama2", {{"user", "Q"}, {"assistant", "A"}}, prefix) == "<s> [INST] Q [/INST][ A </s>]");
  const auto tokenizer = test::fake_tokenizer(prefix);
  const text::SegmentEncoder encoder(*tokenizer);
  const auto joined = tokenizer->encode("<s>[INST] Q [/INST] A </s>", {.add_special_tokens = false});
  CHECK(encoder
            .encode(text::builtin_chat_template("llama2").render(
                std::vector<Message>{{"user", "Q"}, {"assistant", "A"}}))
            .ids == joined);
}

TEST_CASE("a prompt has the same ids with and without its answer") {
  const text::Instruction row{"Add.", "", "3"};
  for (const bool prefix : {false, true}) {
    const auto tokenizer = test::fake_tokenizer({.dummy_prefix = prefix});
    const text::SegmentEncoder encoder(*tokenizer);
    for (const text::ChatTemplate& builtin : text::builtin_chat_templates()) {
      CAPTURE(builtin.name, prefix);
      const text::EncodedPrompt whole = encoder.encode(builtin.render(row));
      const std::vector<text::TokenId> prompt = encoder.encode(builtin.render(row, true)).ids;
      REQUIRE(whole.ids.size() > prompt.size());
      CHECK(std::equal(prompt.begin(), prompt.end(), whole.ids.begin()));
      CHECK(std::find(whole.trained.begin(), whole.trained.end(), 1) - whole.trained.begin() ==
            static_cast<std::ptrdiff_t>(prompt.size()));
    }
  }
}

TEST_CASE("a vocabulary without what a template needs is an error that names it") {
  CHECK_THROWS_WITH(spell("llama3", kTurns, {.chat_tokens = false}), Catch::Contains("<|start_header_id|>"));
  CHECK_THROWS_WITH(spell("alpaca", kTurns, {.eos = false}), Catch::Contains("EOS"));
}

TEST_CASE("a document is BOS, text, EOS as far as there are any") {
  const auto document = [](const test::FakeTokenizerOptions& options) {
    const auto tokenizer = test::fake_tokenizer(options);
    std::string out;
    for (const auto id : text::SegmentEncoder(*tokenizer).encode_document("ab"))
      out += tokenizer->token_of(id);
    return out;
  };
  CHECK(document({}) == "<s>ab</s>");
  CHECK(document({.bos = false, .eos = false}) == "ab");
  CHECK(document({.dummy_prefix = true}) == "<s> ab</s>");
}

TEST_CASE("segments of Llama-2's template have the ids of the whole text, with either of its tokenizers") {
  const auto folder = test::shared_data("tokenizers/llama2");
  if (!folder) {
    WARN("no ../shared/data/tokenizers/llama2: skipped");
    return;
  }
  const test::TemporaryFolder model_only;
  for (const char* name : {"tokenizer.model", "tokenizer_config.json"})
    std::filesystem::copy_file(*folder / name, model_only / name);
  for (const std::filesystem::path& path : {*folder, model_only.path()}) {
    const auto tokenizer = text::load_tokenizer(path);
    CAPTURE(tokenizer->description());
    const text::SegmentEncoder encoder(*tokenizer);
    const auto whole = [&](const std::string& body) {
      std::vector<text::TokenId> ids{*tokenizer->bos_id()};
      const auto rest = tokenizer->encode(body, {.add_special_tokens = false, .parse_special = false});
      ids.insert(ids.end(), rest.begin(), rest.end());
      ids.push_back(*tokenizer->eos_id());
      return ids;
    };
    for (const auto& [question, answer] :
         std::vector<std::pair<std::string, std::string>>{{"What is 2+2?", "4"},
                                                          {"Name a colour.", "Blue, of course."},
                                                          {"\u6771\u4eac?", "\U0001F642"}}) {
      const auto& llama2 = text::builtin_chat_template("llama2");
      const std::vector<Message> messages{{"user", question}, {"assistant", answer}};
      CHECK(encoder.encode(llama2.render(messages)).ids ==
            whole("[INST] " + question + " [/INST] " + answer + " "));

      const auto& alpaca = text::builtin_chat_template("alpaca");
      const text::Instruction row{question, "", answer};
      std::string body;
      for (const text::Segment& segment : alpaca.render(row)) body += segment.text;
      CHECK(encoder.encode(alpaca.render(row)).ids == whole(body));
    }
  }
}
