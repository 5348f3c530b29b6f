#include "text/tokenizer_json.h"

#include "base/error.h"
#include "support/catch.h"
#include "text/byte_level.h"

namespace {

using lorikeet::Error;
using lorikeet::Json;
using lorikeet::text::FolderConfig;
using lorikeet::text::TokenId;
using Ids = std::vector<TokenId>;

/// A tokenizer.json with characters a to z and a few merges; members of `changes` replace its parts.
Json base_json(const std::string& changes = "{}") {
  Json json = Json::parse(R"({
    "version": "1.0", "truncation": {"max_length": 2}, "padding": {"strategy": "Fixed"},
    "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2, "c": 3, " ": 4, "ab": 5,
              "bc": 6, "abc": 7, "_": 8}, "merges": ["b c", ["a", "b"], "a bc"]}})",
                          "base");
  const Json members = Json::parse(changes, "changes");
  for (const auto& [key, value] : members.object()) json.set(key, value);
  return json;
}

std::shared_ptr<const lorikeet::text::Tokenizer> make(const std::string& changes = "{}") {
  return lorikeet::text::make_tokenizer_json(base_json(changes), FolderConfig{}, "tokenizer.json", "", "");
}

Ids encode(const std::string& changes, std::string_view text, lorikeet::text::EncodeOptions options = {}) {
  return make(changes)->encode(text, options);
}

std::string added(const std::string& content, const std::string& flags) {
  return R"({"added_tokens": [{"id": 9, "content": ")" + content + "\", " + flags + "}]}";
}

}  // namespace

TEST_CASE("BPE merges by rank, then from the left, in both spellings of merges") {
  CHECK(encode("{}", "abc") == Ids{7});  // "b c" first, then "a bc"
  CHECK(encode("{}", "abab") == Ids{5, 5});
  CHECK(encode("{}", "xabcx") == Ids{0, 7, 0});
  CHECK(encode("{}", "").empty());
}

TEST_CASE("long words are merged as short ones are") {
  std::string text;
  Ids expected;
  for (int i = 0; i < 500; ++i) {
    text += i % 3 == 0 ? "abc" : "ab";
    expected.push_back(i % 3 == 0 ? 7 : 5);
  }
  CHECK(encode("{}", text) == expected);
}

TEST_CASE("truncation and padding of the file are ignored") { CHECK(encode("{}", "abcabcabc").size() == 3); }

TEST_CASE("a special token is text when parse_special is off, and others are still found") {
  const std::string special = added("<x>", R"("special": true)");
  CHECK(encode(special, "a<x>b") == Ids{1, 9, 2});
  CHECK(encode(special, "a<x>b", {.parse_special = false}) == Ids{1, 0, 0, 0, 2});
  CHECK(encode(added("<x>", R"("special": false)"), "a<x>b", {.parse_special = false}) == Ids{1, 9, 2});
}

TEST_CASE("added tokens take white space and mind words as they are flagged") {
  CHECK(encode(added("<x>", R"("lstrip": true)"), "a  <x> b") == Ids{1, 9, 4, 2});
  CHECK(encode(added("<x>", R"("rstrip": true)"), "a <x>  b") == Ids{1, 4, 9, 2});
  const std::string after = R"({"added_tokens": [{"id": 9, "content": "<x>", "rstrip": true},
      {"id": 10, "content": "  ", "lstrip": true}]})";
  CHECK(encode(after, "a<x>  b") == Ids{1, 9, 2});  // the second one's white space is all taken
  CHECK(encode(after, "a<x>b  ") == Ids{1, 9, 2, 10});
  CHECK(encode(added("ab", R"("single_word": true, "normalized": false)"), "ab abc _ab") ==
        Ids{9 - 4, 4, 7, 4, 8, 5});
  const std::string lower = R"({"normalizer": {"type": "Lowercase"}, "added_tokens": [
      {"id": 9, "content": "XY", "normalized": true}, {"id": 10, "content": "ZZ", "normalized": false}]})";
  CHECK(encode(lower, "xyXYzzZZ") == Ids{9, 9, 0, 0, 10});
}

TEST_CASE("a Metaspace from before prepend_scheme prepends by add_prefix_space") {
  const auto with = [](const std::string& more) {
    return encode(R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "_")" + more + "}}", "a a");
  };
  CHECK(with("") == Ids{8, 1, 8, 1});
  CHECK(with(R"(, "add_prefix_space": true)") == Ids{8, 1, 8, 1});
  CHECK(with(R"(, "add_prefix_space": false)") == Ids{1, 8, 1});
  CHECK(with(R"(, "add_prefix_space": true, "prepend_scheme": "never")") == Ids{1, 8, 1});
}

TEST_CASE("the leftmost and then the longest added token is found") {
  const std::string two = R"({"added_tokens": [{"id": 9, "content": "<a"}, {"id": 10, "content": "<ab>"}]})";
  CHECK(encode(two, "<ab>") == Ids{10});
  CHECK(encode(two, "<ab") == Ids{9, 2});
}

TEST_CASE("a template adds its tokens only when special tokens are wanted") {
  const std::string post = R"({"added_tokens": [{"id": 9, "content": "<s>", "special": true}],
    "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [9], "tokens": ["<s>"]}}}]}})";
  CHECK(encode(post, "abc") == Ids{9, 7});
  CHECK(encode(post, "abc", {.add_special_tokens = false}) == Ids{7});
  CHECK(make(post)->decode(Ids{9, 7}, true) == "abc");
  CHECK(make(post)->decode(Ids{9, 7}, false) == "<s> abc");  // no decoder: joined with spaces
}

TEST_CASE("a template that adds an id beyond the vocabulary is refused") {
  const auto template_with = [](const std::string& id) {
    return R"({"post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [)" +
           id + R"(], "tokens": ["<s>"]}}}})";
  };
  CHECK(encode(template_with("8"), "abc") == Ids{8, 7});
  CHECK_THROWS_WITH(make(template_with("9")), Catch::Contains("below the vocabulary's size of 9, got 9"));
}

TEST_CASE("ids and spellings are found both ways, and unknown ids are refused") {
  const auto tokenizer = make(added("<x>", R"("special": true)"));
  CHECK(tokenizer->vocab_size() == 10);
  CHECK(tokenizer->id_of("<x>") == 9);
  CHECK(tokenizer->id_of("abc") == 7);
  CHECK_FALSE(tokenizer->id_of("zz"));
  CHECK(tokenizer->token_of(9) == "<x>");
  CHECK(tokenizer->is_special(9));
  CHECK_FALSE(tokenizer->is_special(7));
  CHECK_THROWS_WITH(tokenizer->token_of(10), Catch::Contains("no token with id 10"));
  CHECK_THROWS_AS(tokenizer->decode(Ids{-1}, true), Error);
}

TEST_CASE("text that is not UTF-8 is refused") {
  CHECK_THROWS_WITH(make()->encode("ab\xFF"), Catch::Contains("not UTF-8 at byte 2"));
}

TEST_CASE("decoded bytes that are not UTF-8 become replacement characters") {
  std::string vocab;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string name = lorikeet::text::bytes_to_chars(std::string(1, static_cast<char>(byte)));
    if (!vocab.empty()) vocab += ", ";
    vocab += Json(name).dump() + ": " + std::to_string(byte);
  }
  const auto tokenizer = make(R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
      "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {)" +
                              vocab + R"(}, "merges": []}})");
  const auto ids = tokenizer->encode("€x");
  CHECK(ids == Ids{0xE2, 0x82, 0xAC, 'x'});
  CHECK(tokenizer->decode(ids, false) == "€x");
  CHECK(tokenizer->decode(Ids{0xE2, 0x82, 'x'}, false) == "\uFFFDx");
}

TEST_CASE("a component that isn't supported is named, with its place") {
  const auto refused = [](const std::string& changes, const std::string& name) {
    INFO(changes);
    CHECK_THROWS_WITH(make(changes), Catch::Contains("tokenizer.json") && Catch::Contains(name));
  };
  refused(R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Nmt"}]}})", "'Nmt'");
  refused(R"({"pre_tokenizer": {"type": "BertPreTokenizer"}})", "'BertPreTokenizer'");
  refused(R"({"post_processor": {"type": "RobertaProcessing"}})", "'RobertaProcessing'");
  refused(R"({"decoder": {"type": "CTC"}})", "'CTC'");
  refused(R"({"model": {"type": "WordPiece", "vocab": {}}})", "'WordPiece'");
  refused(R"({"model": {"type": "BPE", "vocab": {}, "merges": [], "end_of_word_suffix": "</w>"}})",
          "end_of_word_suffix");
  refused(R"({"model": {"type": "BPE", "vocab": {}, "merges": [], "dropout": 0.1}})", "dropout");
  for (const std::string part : {"pre_tokenizer", "decoder"})
    refused(R"({")" + part + R"(": {"type": "Metaspace", "replacement": "_", "add_prefix_space": false,)" +
                R"( "prepend_scheme": "first"}})",
            "expected true, beside the prepend_scheme 'first', got false");
  refused(R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[a&&b]"}, "behavior": "Isolated"}})",
          "&&");
  refused(R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated"}})",
          "doesn't compile");
  refused(R"({"pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "Sideways"}})",
          "MergedWithNext");
}

TEST_CASE("a model that contradicts itself is refused") {
  const auto refused = [](const std::string& model, const std::string& text) {
    INFO(model);
    CHECK_THROWS_WITH(make(R"({"model": )" + model + "}"), Catch::Contains(text));
  };
  refused(R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]})", "'b', which is not in the vocabulary");
  refused(R"({"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]})", "'ab'");
  refused(R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["ab"]})", "expected \"a b\"");
  refused(R"({"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []})", "id 0 is given to both");
  refused(R"({"type": "BPE", "vocab": {"a": -1}, "merges": []})", "has id -1");
  refused(R"({"type": "BPE", "vocab": {"a": 99999999999}, "merges": []})", "has id 99999999999");
  refused(R"({"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "?"})", "unk_token '?'");
  refused(R"({"type": "BPE", "vocab": {"a": 0}})", "'merges' is missing");
  refused(R"({"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 1})", "expected an id of the vocabulary");
  refused(R"({"type": "Unigram", "vocab": [["a"]]})", "expected [token, score]");
}

TEST_CASE("a pattern that runs away is an error, not a hang") {
  const auto tokenizer =
      make(R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated"}})");
  std::string text(64, 'a');
  text += '!';
  CHECK_THROWS_WITH(tokenizer->encode(text), Catch::Contains("runs away"));
}
