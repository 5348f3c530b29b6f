#include <bit>

#include "base/error.h"
#include "base/file.h"
#include "support/catch.h"
#include "support/paths.h"
#include "text/sentencepiece_check.h"
#include "text/sentencepiece_tokenizer.h"

namespace {

using lorikeet::text::check_sentencepiece_model;
using lorikeet::text::FolderConfig;
using lorikeet::text::TokenId;
using Ids = std::vector<TokenId>;

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

std::string message(unsigned field, const std::string& bytes) {
  return varint(field << 3 | 2) + varint(bytes.size()) + bytes;
}

std::string piece(const std::string& text, float score = -1, unsigned type = 1) {
  const auto bits = std::bit_cast<std::uint32_t>(score);
  std::string out = message(1, text) + "\x15";
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(bits >> shift);
  return message(1, out + "\x18" + varint(type));
}

std::string small_model() { return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("a") + piece("b"); }

void refused(const std::string& bytes, const std::string& text) {
  CHECK_THROWS_WITH(check_sentencepiece_model(bytes, "tokenizer.model"),
                    Catch::Contains("[tokenizer.model") && Catch::Contains(text));
}

std::string golden_model() {
  return lorikeet::read_file(lorikeet::test::source_dir() /
                             "tests/parity/goldens/tokenizer/sp-bpe-fallback/tokenizer.model");
}

FolderConfig llama_config() {
  FolderConfig config;
  config.bos_token = "<s>";
  config.eos_token = "</s>";
  config.special_tokens = {"<s>", "</s>", "<unk>"};
  return config;
}

std::shared_ptr<const lorikeet::text::Tokenizer> make(const FolderConfig& config) {
  return lorikeet::text::make_sentencepiece_tokenizer(golden_model(), config, "tokenizer.model", "", "");
}

}  // namespace

TEST_CASE("a sound sentencepiece model passes the check") {
  const auto summary = check_sentencepiece_model(small_model(), "tokenizer.model");
  REQUIRE(summary.pieces.size() == 4);
  CHECK(summary.pieces[2].text == "a");
  CHECK(summary.is_unigram);
  CHECK_FALSE(check_sentencepiece_model(golden_model(), "tokenizer.model").is_unigram);
}

TEST_CASE("a sentencepiece model that a library might trust too far is refused") {
  const std::string good = small_model();
  refused("", "no pieces");
  refused(good + piece(""), "no text");
  refused(good + piece(std::string(5000, 'x')), "longer than 4096");
  refused(good + piece("a"), "'a' is there twice");
  refused(good + piece(std::string("x\0y", 3)), "NUL");
  refused(good + piece("\xFF"), "not UTF-8");
  refused(good + piece("c", std::numeric_limits<float>::quiet_NaN()), "not finite");
  refused(good + piece("c", std::numeric_limits<float>::infinity()), "not finite");
  refused(good + piece("c", 0, 7), "type is none of 1 to 6");
  refused(good + piece("c", 0, 2), "2 unknown pieces");
  refused(piece("a"), "0 unknown pieces");
  refused(good + piece("<0x0A>", 0, 6), "1 byte pieces");
  refused(good + piece("0A", 0, 6), "not named <0xNN>");
  refused(good + message(2, "\x18\x03"), "neither unigram (1) nor BPE (2)");
  refused(good + message(2, varint(35 << 3) + "\x01"), "byte_fallback without byte pieces");
  refused(good + "\x0A\xFF\xFF\xFF\xFF\x7F", "a field of 34359738367 bytes");
  refused(good + "\x0B", "wire type 3");
  refused(good + "\x08\x01", "no message");
}

TEST_CASE("a normalisation map that points outside itself is refused") {
  const auto map = [](std::uint32_t trie_bytes, const std::string& rest) {
    std::string out;
    for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(trie_bytes >> shift);
    return small_model() + message(3, message(2, out + rest));
  };
  const std::string trie(1024, '\0');
  const std::string strings("x\0", 2);
  CHECK_NOTHROW(check_sentencepiece_model(map(1024, trie + strings), "tokenizer.model"));
  refused(map(1024, trie), "length is impossible");
  refused(map(1000, trie + strings), "length is impossible");
  refused(map(0xFFFFFC00, trie + strings), "length is impossible");
  refused(map(1024, trie + "x"), "don't end");
  std::string wild = trie;
  wild[2] = '\x10';  // an offset far beyond the 256 units
  refused(map(1024, wild + strings), "points outside itself");
  wild = trie;
  wild[1] = '\x01';  // the first unit has a leaf,
  wild[0] = '\x50';  // itself, whose value is
  refused(map(1024, wild + strings), "points outside its strings");
}

TEST_CASE("a sentencepiece model that is cut anywhere is refused or loads, and never crashes") {
  const std::string whole = golden_model();
  std::size_t refusals = 0;
  std::size_t lengths = 0;
  // Closely where the pieces are, and at wider steps inside the map behind them.
  for (std::size_t length = 0; length < whole.size(); length += length < 4096 ? 1 : 4099) {
    ++lengths;
    try {
      check_sentencepiece_model(std::string_view(whole).substr(0, length), "tokenizer.model");
    } catch (const lorikeet::Error&) {
      ++refusals;
    }
  }
  CHECK(refusals > lengths / 2);
}

TEST_CASE("BOS and EOS go around as the config says, and special tokens are found in the text") {
  auto config = llama_config();
  const auto plain = make(config);
  const auto bare = plain->encode("a b", {.add_special_tokens = false});
  Ids framed = bare;
  framed.insert(framed.begin(), 1);
  CHECK(plain->encode("a b") == framed);
  CHECK(plain->bos_id() == 1);
  CHECK(plain->eos_id() == 2);
  config.add_bos_token = false;
  config.add_eos_token = true;
  framed = bare;
  framed.push_back(2);
  CHECK(make(config)->encode("a b") == framed);

  const auto spoken = plain->encode("<s>a b</s>", {.add_special_tokens = false});
  CHECK(spoken.front() == 1);
  CHECK(spoken.back() == 2);
  CHECK(plain->decode(spoken, false) == "<s>a b</s>");
  CHECK(plain->decode(spoken, true) == "a b");
  const auto as_text = plain->encode("<s>a b</s>", {.add_special_tokens = false, .parse_special = false});
  CHECK(as_text.front() != 1);
  CHECK(plain->decode(as_text, true) == "<s>a b</s>");
}

TEST_CASE("added tokens beyond the model have their ids, and legacy decides on the space behind one") {
  auto config = llama_config();
  lorikeet::text::AddedToken token;
  token.id = 5000;
  token.content = "<|x|>";
  token.special = true;
  config.added_tokens = {token};
  const auto legacy = make(config);
  CHECK(legacy->vocab_size() == 5001);
  CHECK(legacy->id_of("<|x|>") == 5000);
  CHECK(legacy->is_special(5000));
  CHECK_THROWS_AS(legacy->token_of(4999), lorikeet::Error);
  const auto after = [](const auto& tokenizer) {
    return tokenizer->token_of(tokenizer->encode("q<|x|>hello", {.add_special_tokens = false}).at(3))
        .substr(0, 3);
  };
  CHECK(after(legacy) == "\u2581");
  config.legacy = false;
  const auto modern = make(config);
  CHECK(after(modern) != "\u2581");
  CHECK(modern->decode(modern->encode("q<|x|>hello"), true) == "qhello");
}
