#include "text/new_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "base/json_text.h"
#include "base/strings.h"

namespace lorikeet::text {
namespace {

Json described(const AddedToken& token) {
  return Json()
      .set("content", token.content)
      .set("single_word", token.single_word)
      .set("lstrip", token.lstrip)
      .set("rstrip", token.rstrip)
      .set("normalized", token.normalized)
      .set("special", token.special);
}

}  // namespace

std::vector<AddedToken> number_tokens(const NewTokens& tokens, const Tokenizer& tokenizer) {
  std::vector<AddedToken> added;
  std::vector<std::string> seen;
  auto next = static_cast<TokenId>(tokenizer.vocab_size());
  const auto add = [&](const std::vector<std::string>& contents, bool special, const char* setting) {
    for (const std::string& content : contents) {
      if (content.empty()) throw Error(std::string("[") + setting + "] expected a token's text, got ''");
      if (std::find(seen.begin(), seen.end(), content) != seen.end())
        throw Error(std::string("[") + setting + "] '" + escape_control(content) + "' is named twice");
      seen.push_back(content);
      if (tokenizer.id_of(content)) continue;
      added.push_back({.id = next++, .content = content, .normalized = !special, .special = special});
    }
  };
  add(tokens.words, false, "model.add_tokens");
  add(tokens.special, true, "model.add_special_tokens");
  return added;
}

ExtendedTokenizer load_tokenizer_with(const std::filesystem::path& folder, const NewTokens& tokens) {
  ExtendedTokenizer extended{load_tokenizer(folder), {}};
  extended.added = number_tokens(tokens, *extended.tokenizer);
  if (!extended.added.empty()) extended.tokenizer = load_tokenizer(folder, extended.added);
  return extended;
}

std::string tokenizer_json_with(const std::string& json, const std::vector<AddedToken>& tokens) {
  std::vector<Json> items;
  items.reserve(tokens.size());
  for (const AddedToken& token : tokens)
    items.push_back(described(token).set("id", static_cast<std::int64_t>(token.id)));
  return with_items(json, "added_tokens", items);
}

std::string tokenizer_config_with(const std::string& json, const std::vector<AddedToken>& tokens) {
  std::string changed = json;
  for (const AddedToken& token : tokens)
    changed = with_member(changed, {"added_tokens_decoder", std::to_string(token.id)}, described(token));
  return changed;
}

}  // namespace lorikeet::text
