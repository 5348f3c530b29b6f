#include "text/vocabulary.h"

#include <array>
#include <cstdio>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::text {

void Vocabulary::add(std::string token, std::int64_t id, const std::string& where) {
  if (id < 0 || id >= kIdLimit) {
    throw Error("[" + where + "] token '" + escape_control(token) + "' has id " + std::to_string(id) +
                ", expected 0 to " + std::to_string(kIdLimit - 1));
  }
  const auto index = static_cast<std::size_t>(id);
  if (index >= tokens_.size()) tokens_.resize(index + 1);
  if (tokens_[index]) {
    throw Error("[" + where + "] id " + std::to_string(id) + " is given to both '" +
                escape_control(*tokens_[index]) + "' and '" + escape_control(token) + "'");
  }
  if (!ids_.emplace(token, static_cast<TokenId>(id)).second) {
    throw Error("[" + where + "] token '" + escape_control(token) + "' is there twice");
  }
  tokens_[index] = std::move(token);
}

std::optional<TokenId> Vocabulary::id_of(std::string_view token) const {
  const auto at = ids_.find(token);
  if (at == ids_.end()) return std::nullopt;
  return at->second;
}

const std::string* Vocabulary::token_of(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= tokens_.size()) return nullptr;
  const auto& token = tokens_[static_cast<std::size_t>(id)];
  return token ? &*token : nullptr;
}

std::vector<TokenId> byte_token_ids(const Vocabulary& vocabulary) {
  std::vector<TokenId> ids;
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::array<char, 8> name{};
    std::snprintf(name.data(), name.size(), "<0x%02X>", byte);
    ids.push_back(vocabulary.id_of(name.data()).value_or(-1));
  }
  return ids;
}

}  // namespace lorikeet::text
