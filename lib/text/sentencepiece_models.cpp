#include "text/sentencepiece_models.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "text/bpe.h"
#include "text/unicode.h"
#include "text/unigram.h"

namespace lorikeet::text {
namespace {

using Type = SentencePieceSummary::Type;

constexpr std::string_view kMark = "\xE2\x96\x81";

// Ranks by falling score, equal for equal scores, of the pieces of normal type.
std::unordered_map<std::string_view, std::uint32_t> rank_pieces(const SentencePieceSummary& summary) {
  std::vector<std::pair<float, std::string_view>> order;
  for (const auto& piece : summary.pieces) {
    if (piece.type == Type::kNormal) order.emplace_back(-piece.score, piece.text);
  }
  std::sort(order.begin(), order.end());
  std::unordered_map<std::string_view, std::uint32_t> ranks;
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && order[i].first != order[i - 1].first) ++rank;
    ranks.emplace(order[i].second, rank);
  }
  return ranks;
}

}  // namespace

std::size_t byte_of_piece(const std::string& piece) { return std::stoul(piece.substr(3, 2), nullptr, 16); }

bool has_plain_normalizer(const SentencePieceSummary& summary) {
  const bool user_defined = std::any_of(summary.pieces.begin(), summary.pieces.end(),
                                        [](const auto& piece) { return piece.type == Type::kUserDefined; });
  return !summary.has_chars_map && !summary.remove_extra_whitespaces && summary.escape_whitespaces &&
         !summary.whitespace_as_suffix && !user_defined;
}

std::string mark_spaces(std::string_view text, bool prefix) {
  std::string out;
  out.reserve(text.size() * 3 / 2 + kMark.size());
  if (prefix) out += kMark;
  for (const char c : text) {
    if (c == ' ') {
      out += kMark;
    } else {
      out += c;
    }
  }
  return out;
}

std::unique_ptr<Model> make_unigram_of(const SentencePieceSummary& summary, const std::string& where) {
  float lowest = std::numeric_limits<float>::max();
  float highest = std::numeric_limits<float>::lowest();
  std::optional<TokenId> unk;
  std::vector<TokenId> byte_ids;
  if (summary.byte_fallback) byte_ids.resize(256, -1);
  for (std::size_t id = 0; id < summary.pieces.size(); ++id) {
    const auto& piece = summary.pieces[id];
    if (piece.type == Type::kByte && summary.byte_fallback) {
      byte_ids[byte_of_piece(piece.text)] = static_cast<TokenId>(id);
    }
    if (piece.type == Type::kUnknown) unk = static_cast<TokenId>(id);
    if (piece.type != Type::kNormal) continue;
    lowest = std::min(lowest, piece.score);
    highest = std::max(highest, piece.score);
  }
  Vocabulary vocabulary;  // the pieces that may be cut out of text
  std::vector<double> scores(summary.pieces.size());
  for (std::size_t id = 0; id < scores.size(); ++id) {
    const auto& piece = summary.pieces[id];
    if (piece.type == Type::kNormal) {
      scores[id] = piece.score;
    } else if (piece.type == Type::kUserDefined) {  // so good that it is always taken
      scores[id] = static_cast<float>(static_cast<float>(piece.text.size()) * highest - 0.1);
    } else {
      continue;
    }
    vocabulary.add(piece.text, static_cast<std::int64_t>(id), where);
  }
  const float unk_score = lowest - static_cast<float>(Unigram::kUnkPenalty);
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), unk, unk_score,
                                   std::move(byte_ids), Unigram::Precision::kFloat, where);
}

std::unique_ptr<Model> make_bpe_of(const SentencePieceSummary& summary, const std::string& where) {
  const auto ranks = rank_pieces(summary);
  BpeParts parts;
  parts.fuse_unk = true;
  parts.byte_fallback = summary.byte_fallback;
  Vocabulary vocabulary;
  for (std::size_t id = 0; id < summary.pieces.size(); ++id) {
    const auto& [text, type, score] = summary.pieces[id];
    if (type == Type::kUnused || type == Type::kUserDefined) return nullptr;
    if (type == Type::kControl) continue;
    if (type == Type::kUnknown) parts.unk_token = text;
    vocabulary.add(text, static_cast<std::int64_t>(id), where);
    if (type != Type::kNormal) continue;
    const std::string_view whole = text;
    for (std::size_t at = 0; at < whole.size();) {
      const std::size_t length = utf8_length(whole[at]);
      if (!ranks.contains(whole.substr(at, length))) return nullptr;
      at += length;
      if (at == whole.size()) break;
      const std::string_view left = whole.substr(0, at);
      const std::string_view right = whole.substr(at);
      if (!ranks.contains(left) || !ranks.contains(right)) continue;
      parts.merges.emplace_back(left, right);
      parts.ranks.push_back(ranks.at(whole));
    }
  }
  return std::make_unique<Bpe>(std::move(vocabulary), parts, where);
}

}  // namespace lorikeet::text
