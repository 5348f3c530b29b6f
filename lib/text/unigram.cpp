#include "text/unigram.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/strings.h"
#include "text/models_json.h"
#include "text/unicode.h"
#include "text/word_cache.h"

namespace lorikeet::text {
Unigram::Unigram(Vocabulary vocabulary, std::vector<double> scores, std::optional<TokenId> unk,
                 double unk_score, std::vector<TokenId> byte_ids, Precision precision, std::string where)
    : Model(std::move(vocabulary)),
      scores_(std::move(scores)),
      unk_(unk),
      unk_score_(unk_score),
      precision_(precision),
      byte_ids_(std::move(byte_ids)),
      where_(std::move(where)),
      cache_owner_(WordCache::new_owner()) {
  const auto& tokens = this->vocabulary().tokens();
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id] && !tokens[id]->empty()) trie_.insert(*tokens[id], static_cast<std::uint32_t>(id));
  }
}

void Unigram::tokenize(std::string_view piece, std::vector<TokenId>& out) const {
  if (piece.empty()) return;
  WordCache& cache = WordCache::of_thread();
  if (cache.find(cache_owner_, piece, out)) return;

  thread_local std::vector<Best> best;
  best_paths(piece, best);
  struct Step {
    std::uint32_t begin;
    std::uint32_t end;
    TokenId id;
  };
  thread_local std::vector<Step> path;
  path.clear();
  for (auto end = static_cast<std::uint32_t>(piece.size()); end > 0; end = best[end].begin) {
    path.push_back({best[end].begin, end, best[end].id});
  }
  std::reverse(path.begin(), path.end());

  const std::size_t before = out.size();
  for (std::size_t i = 0; i < path.size(); ++i) {
    const bool unknown = unk_ && path[i].id == *unk_;
    const std::uint32_t begin = path[i].begin;
    while (unknown && i + 1 < path.size() && path[i + 1].id == *unk_) ++i;  // a run counts as one
    emit(piece.substr(begin, path[i].end - begin), unknown, path[i].id, out);
  }
  cache.store(cache_owner_, piece, std::span(out).subspan(before));
}

void Unigram::best_paths(std::string_view piece, std::vector<Best>& best) const {
  best.assign(piece.size() + 1, Best{});
  best[0].begin = 0;
  std::size_t next = 0;
  for (std::size_t at = 0; at < piece.size(); at = next) {
    next = at + utf8_length(piece[at]);
    const double here = best[at].score;
    const auto reach = [&](std::size_t end, double score, TokenId id) {
      Best& target = best[end];
      double sum = here + score;
      if (precision_ == Precision::kFloat) sum = static_cast<float>(sum);
      if (target.begin == kUnreached || sum > target.score) {
        target = {sum, static_cast<std::uint32_t>(at), id};
      }
    };
    bool whole_character = false;
    ByteTrie::Node node = ByteTrie::kRoot;
    for (std::size_t i = at; i < piece.size(); ++i) {
      node = trie_.child(node, piece[i]);
      if (node == ByteTrie::kNone) break;
      if (const auto id = trie_.value(node)) {
        reach(i + 1, scores_[*id], static_cast<TokenId>(*id));
        whole_character = whole_character || i + 1 == next;
      }
    }
    if (!whole_character) {
      if (!unk_) {
        throw Error("[" + where_ + "] no token covers '" + escape_control(piece.substr(at, next - at)) +
                    "', and the model has no unk_id");
      }
      reach(next, unk_score_, *unk_);
    }
  }
}

void Unigram::emit(std::string_view covered, bool unknown, TokenId id, std::vector<TokenId>& out) const {
  if (!unknown) {
    out.push_back(id);
    return;
  }
  if (const auto known = vocabulary().id_of(covered)) {  // the unk token's own spelling
    out.push_back(*known);
    return;
  }
  const bool has_bytes = !byte_ids_.empty() && std::all_of(covered.begin(), covered.end(), [&](char byte) {
    return byte_ids_[static_cast<unsigned char>(byte)] >= 0;
  });
  if (!has_bytes) {
    out.push_back(*unk_);
    return;
  }
  for (const char byte : covered) out.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
}

std::unique_ptr<Model> make_unigram(const JsonView& json) {
  const JsonView pieces = json.at("vocab");
  if (!pieces.json().is_array()) pieces.fail("an array of [token, score]");
  Vocabulary vocabulary;
  std::vector<double> scores;
  for (const Json& item : pieces.json().array()) {
    const bool good = item.is_array() && item.array().size() == 2 && item.array()[0].is_string() &&
                      item.array()[1].is_number() && std::isfinite(item.array()[1].number());
    if (!good) {
      throw Error("[" + pieces.where() + "[" + std::to_string(scores.size()) +
                  "]] expected [token, score], got " + escape_control(item.dump().substr(0, 80)));
    }
    vocabulary.add(item.array()[0].string(), static_cast<std::int64_t>(scores.size()), pieces.where());
    scores.push_back(item.array()[1].number());
  }
  std::optional<TokenId> unk;
  if (const auto id = json.maybe("unk_id")) {
    if (id->as_int() < 0 || static_cast<std::uint64_t>(id->as_int()) >= scores.size()) {
      throw Error("[" + id->where() + "] expected an id of the vocabulary, got " +
                  std::to_string(id->as_int()));
    }
    unk = static_cast<TokenId>(id->as_int());
  }
  std::vector<TokenId> byte_ids;
  if (json.get_bool("byte_fallback", false)) byte_ids = byte_token_ids(vocabulary);
  const double lowest = scores.empty() ? 0 : *std::min_element(scores.begin(), scores.end());
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), unk,
                                   lowest - Unigram::kUnkPenalty, std::move(byte_ids),
                                   Unigram::Precision::kDouble, json.where());
}

}  // namespace lorikeet::text
