#include "recipes/adapter_tokens.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/strings.h"
#include "recipes/adapter_template.h"

namespace lorikeet::recipes {
namespace {

std::shared_ptr<const text::Tokenizer> kept_tokenizer(const std::filesystem::path& adapter) {
  const auto folder = tokenizer_of_adapter(adapter);
  if (!folder) return nullptr;
  try {
    return text::load_tokenizer(*folder);
  } catch (const Error&) {
    return nullptr;
  }
}

// A vocabulary may have gaps.
std::optional<std::string> token_at(const text::Tokenizer& tokenizer, text::TokenId id) {
  try {
    return tokenizer.token_of(id);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string shown(const std::optional<std::string>& token, bool special) {
  if (!token) return "no token";
  return "the " + std::string(special ? "special " : "") + "token '" + escape_control(*token) + "'";
}

// Throws Error at the first id that both have and that isn't the same token.
void require_same(const text::Tokenizer& there, const text::Tokenizer& here, const std::string& whose,
                  const std::string& advice) {
  const auto ids = static_cast<text::TokenId>(std::min(there.vocab_size(), here.vocab_size()));
  for (text::TokenId id = 0; id < ids; ++id) {
    const auto old = token_at(there, id), now = token_at(here, id);
    const bool was_special = there.is_special(id), is_special = here.is_special(id);
    if (old == now && was_special == is_special) continue;
    throw Error(whose + " row " + std::to_string(id) + " of the embedding was trained for " +
                shown(old, was_special) + ", and here it is that of " + shown(now, is_special) + advice);
  }
}

}  // namespace

void require_same_tokens(const std::filesystem::path& adapter, const ModelSession& session) {
  if (session.adapters->tables().empty()) return;
  const auto kept = kept_tokenizer(adapter);
  if (kept == nullptr) return;
  require_same(
      *kept, *session.tokenizer, "[lora.init] '" + escape_control(adapter.string()) + "':",
      "; give model.add_tokens and model.add_special_tokens as that run had them, in the same order");
}

void require_same_tokens(const std::filesystem::path& adapter, const std::filesystem::path& other) {
  const auto first = kept_tokenizer(adapter), second = kept_tokenizer(other);
  if (first == nullptr || second == nullptr) return;
  require_same(
      *first, *second, "[adapters] '" + escape_control(adapter.string()) + "':",
      " in '" + escape_control(other.string()) +
          "'; adapters with added tokens can be averaged where they added the same ones, in the same "
          "order");
}

}  // namespace lorikeet::recipes
