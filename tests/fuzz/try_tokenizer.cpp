#include "try_tokenizer.h"

#include <array>
#include <string_view>

#include "fuzz.h"

namespace lorikeet::fuzz {

void try_tokenizer(const text::Tokenizer& tokenizer) {
  static constexpr std::array<std::string_view, 5> kTexts{
      "", " The  quick\tbrown fox's 12345 jumps!\r\n",
      "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9 e\xCC\x81 \xE4\xB8\xAD", "<s>[INST] a </s><|eot_id|> b",
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
  for (const std::string_view text : kTexts) {
    for (const bool special : {false, true}) {
      const auto ids = accepted(
          [&] { return tokenizer.encode(text, {.add_special_tokens = special, .parse_special = special}); });
      if (!ids) continue;  // e.g. a text without a token for it, and no unknown token
      for (const text::TokenId id : *ids)
        require(id >= 0 && static_cast<std::size_t>(id) < tokenizer.vocab_size());
      accepted([&] { return tokenizer.decode(*ids, special); });
    }
  }
}

}  // namespace lorikeet::fuzz
