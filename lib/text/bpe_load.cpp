// Building a Bpe, and reading one from the "model" object of a tokenizer.json.
#include "base/error.h"
#include "base/strings.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/models_json.h"
#include "text/unicode.h"
#include "text/word_cache.h"

namespace lorikeet::text {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";

// True if `token` has a mark behind a character that is no mark.
bool has_inner_mark(std::string_view token) {
  std::size_t at = 0;
  while ((at = token.find(kMark, at)) != std::string_view::npos) {
    if (at > 0 && !token.substr(0, at).ends_with(kMark)) return true;
    at += kMark.size();
  }
  return false;
}

std::pair<std::string, std::string> read_merge(const Json& json, const std::string& where) {
  if (json.is_string()) {
    const std::string& text = json.string();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  } else if (json.is_array() && json.array().size() == 2 && json.array()[0].is_string() &&
             json.array()[1].is_string()) {
    return {json.array()[0].string(), json.array()[1].string()};
  }
  throw Error("[" + where + "] expected \"a b\" or [\"a\", \"b\"], got " +
              escape_control(json.dump().substr(0, 80)));
}

std::vector<std::pair<std::string, std::string>> read_merges(const JsonView& json) {
  if (!json.json().is_array()) json.fail("an array");
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(json.json().array().size());
  for (const Json& item : json.json().array()) {
    if (item.is_string() && item.string().starts_with("#version")) continue;  // a merges.txt taken over whole
    merges.push_back(read_merge(item, json.where() + "[" + std::to_string(merges.size()) + "]"));
  }
  return merges;
}

Vocabulary read_vocabulary(const JsonView& json) {
  if (!json.json().is_object()) json.fail("an object of token: id");
  Vocabulary vocabulary;
  for (const auto& [token, id] : json.json().object()) {
    if (!id.is_integer())
      throw Error("[" + json.where() + "] the id of '" + escape_control(token) + "' is no integer");
    vocabulary.add(token, id.integer(), json.where());
  }
  return vocabulary;
}

void refuse_unsupported(const JsonView& json) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!json.get_string(key, "").empty()) {
      throw Error("[" + json.where() + "] BPE with '" + key + "' is not supported");
    }
  }
  if (json.get_number("dropout", 0) != 0) {
    throw Error("[" + json.where() +
                "] BPE with 'dropout' is not supported: ids would be random; set it to null");
  }
}

}  // namespace

Bpe::Bpe(Vocabulary vocabulary, const BpeParts& parts, const std::string& where)
    : Model(std::move(vocabulary)),
      fuse_unk_(parts.fuse_unk),
      byte_fallback_(parts.byte_fallback),
      ignore_merges_(parts.ignore_merges),
      byte_pieces_(parts.byte_pieces),
      cache_owner_(WordCache::new_owner()) {
  if (parts.unk_token) {
    unk_ = this->vocabulary().id_of(*parts.unk_token);
    if (!unk_) {
      throw Error("[" + where + "] unk_token '" + escape_control(*parts.unk_token) +
                  "' is not in the vocabulary");
    }
  }
  find_symbols(parts);
  add_merges(parts, where);
}

void Bpe::find_symbols(const BpeParts& parts) {
  low_.fill(-1);
  byte_ids_ = byte_token_ids(vocabulary());
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (parts.byte_pieces) {
      std::string spelling;
      append_utf8(spelling, byte_to_char(static_cast<unsigned char>(byte)));
      low_[byte] = vocabulary().id_of(spelling).value_or(-1);
    }
  }
  const auto& tokens = vocabulary().tokens();
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id] || tokens[id]->empty()) continue;
    const std::string& token = *tokens[id];
    if (parts.byte_pieces) {
      if (!parts.ignore_merges) continue;
      if (auto raw = chars_to_bytes(token)) raw_words_.emplace(std::move(*raw), static_cast<TokenId>(id));
    } else if (utf8_length(token[0]) == token.size()) {
      std::size_t at = 0;
      const char32_t c = next_code_point(token, at);
      if (c < 0x80) {
        low_[c] = static_cast<TokenId>(id);
      } else {
        characters_.set(c, id);
      }
    }
  }
}

void Bpe::add_merges(const BpeParts& parts, const std::string& where) {
  merges_.reserve(parts.merges.size());
  bool inner_mark = false;
  for (std::size_t i = 0; i < parts.merges.size(); ++i) {
    const auto& [left, right] = parts.merges[i];
    const std::uint64_t rank = parts.ranks.empty() ? i : parts.ranks[i];
    const auto id_of = [&, &left = left, &right = right](const std::string& token) {
      const auto id = vocabulary().id_of(token);
      if (!id) {
        throw Error("[" + where + "] merge " + std::to_string(i) + " ('" + escape_control(left) + "' and '" +
                    escape_control(right) + "') needs '" + escape_control(token) +
                    "', which is not in the vocabulary");
      }
      return static_cast<std::uint32_t>(*id);
    };
    const std::string merged = left + right;
    const std::uint64_t left_id = id_of(left);
    const std::uint64_t right_id = id_of(right);
    // A pair given twice has its last rank.
    merges_.set(left_id << 32 | right_id, rank << 32 | id_of(merged));
    inner_mark = inner_mark || has_inner_mark(merged);
  }
  // The mark itself must be a symbol, or it would be part of a run of unknown characters.
  cut_at_marks_ = !parts.byte_pieces && !parts.ignore_merges && !inner_mark && vocabulary().id_of(kMark);
}

bool can_take_bytes(const JsonView& json) {
  return json.at("type").as_string() == "BPE" && !json.get_bool("byte_fallback", false);
}

std::unique_ptr<Model> make_bpe(const JsonView& json, bool byte_pieces) {
  refuse_unsupported(json);
  BpeParts parts;
  parts.merges = read_merges(json.at("merges"));
  if (const auto unk = json.maybe("unk_token")) parts.unk_token = unk->as_string();
  parts.fuse_unk = json.get_bool("fuse_unk", false);
  parts.byte_fallback = json.get_bool("byte_fallback", false);
  parts.ignore_merges = json.get_bool("ignore_merges", false);
  parts.byte_pieces = byte_pieces;
  return std::make_unique<Bpe>(read_vocabulary(json.at("vocab")), parts, json.where());
}

}  // namespace lorikeet::text
