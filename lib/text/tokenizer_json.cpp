#include "text/tokenizer_json.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/utf8_input.h"

namespace lorikeet::text {
namespace {

const Json kNull;

JsonView part(const JsonView& json, std::string_view key) {
  return json.maybe(key).value_or(JsonView(kNull, json.where() + ": " + std::string(key)));
}

class JsonTokenizer final : public Tokenizer {
 public:
  JsonTokenizer(const JsonView& json, const FolderConfig& config, std::string description,
                std::string fingerprint)
      : Tokenizer(templates_of(config), std::move(description), std::move(fingerprint)),
        normalizer_(make_normalizer(part(json, "normalizer"))),
        pre_tokenizer_(make_pre_tokenizer(part(json, "pre_tokenizer"), can_take_bytes(json.at("model")))),
        model_(make_model(json.at("model"), pre_tokenizer_.yields_bytes)),
        post_processor_(part(json, "post_processor")),
        decoder_(make_decoder(part(json, "decoder"))) {
    vocab_size_ = model_->vocabulary().id_bound();
    if (const auto added = json.maybe("added_tokens")) add_tokens(*added);
    post_processor_.require_ids_below(vocab_size_, json.where());
    if (config.bos_token) bos_ = id_of(*config.bos_token);
    if (config.eos_token) eos_ = id_of(*config.eos_token);
  }

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override;
  std::vector<TextSegment> split_at_added(std::string_view text, const EncodeOptions& options) const override;
  std::vector<TokenId> encode_between(std::string_view text, bool at_start,
                                      const EncodeOptions& options) const override;
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override;

  std::optional<TokenId> id_of(std::string_view token) const override {
    const auto added = added_ids_.find(std::string(token));
    if (added != added_ids_.end()) return added->second;
    return model_->vocabulary().id_of(token);
  }
  std::string token_of(TokenId id) const override {
    const auto added = added_.find(id);
    return added != added_.end() ? added->second.token.content : model_token(id);
  }
  bool is_special(TokenId id) const override {
    const auto added = added_.find(id);
    return added != added_.end() && added->second.token.special;
  }

 private:
  struct Added {
    AddedToken token;
    std::string normal;  // the content as the normaliser leaves it
  };

  void add_tokens(const JsonView& json);
  void encode_plain(std::string_view text, bool at_start, const EncodeOptions& options,
                    std::vector<TokenId>& out) const;
  std::vector<ByteRange> normal_literals(std::string_view text, const NormalText& normal, bool at_start,
                                         std::span<const ByteRange> literal) const;
  void encode_normal(std::string_view text, bool at_start, std::vector<TokenId>& out) const;

  const std::string& model_token(TokenId id) const {
    const std::string* token = model_->vocabulary().token_of(id);
    if (token == nullptr) {
      throw Error("[tokenizer] there is no token with id " + std::to_string(id) + " (vocabulary size " +
                  std::to_string(vocab_size_) + ")");
    }
    return *token;
  }

  std::unique_ptr<Normalizer> normalizer_;
  PreTokenizerSteps pre_tokenizer_;
  std::unique_ptr<Model> model_;
  PostProcessor post_processor_;
  std::unique_ptr<Decoder> decoder_;

  std::unordered_map<std::string, TokenId> added_ids_;
  std::unordered_map<TokenId, Added> added_;
  AddedTokenMatcher raw_matcher_;     // tokens looked for in the text as it comes
  AddedTokenMatcher normal_matcher_;  // and in the normalised text
};

// An added token that the model knows has the model's id; the others are numbered on from the model's count.
// The ids in the file agree in every file that the Rust library wrote. In one edited by hand, that library
// goes by this numbering and so does this one, with a warning.
void JsonTokenizer::add_tokens(const JsonView& json) {
  const Vocabulary& vocabulary = model_->vocabulary();
  auto next_id = static_cast<TokenId>(vocabulary.size());
  for (const JsonView& item : json.items()) {
    Added added{read_added_token(item), {}};
    AddedToken& token = added.token;
    if (token.content.empty()) continue;
    const auto known = id_of(token.content);
    token.id = known ? *known : next_id++;
    if (const std::int64_t declared = item.at("id").as_int(); declared != token.id) {
      log_warning("[" + item.where() + "] token '" + token.content + "' is declared with id " +
                  std::to_string(declared) + ", but the tokenizers library numbers it " +
                  std::to_string(token.id) + ", which is used");
    }
    added.normal = token.content;
    if (token.normalized && normalizer_) {
      NormalText normal{token.content, true};
      normalizer_->apply(normal);
      added.normal = std::move(normal.text);
    }
    added_ids_[token.content] = token.id;
    added_.insert_or_assign(token.id, std::move(added));
  }
  for (const auto& [id, added] : added_) {
    (added.token.normalized ? normal_matcher_ : raw_matcher_).add(added.normal, added.token);
    vocab_size_ = std::max(vocab_size_, static_cast<std::size_t>(id) + 1);
  }
}

std::vector<TokenId> JsonTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  check_utf8_input(text);
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 4 + 4);
  EncodeOptions within = options;
  for (const TextSegment& segment : split_at_added(text, options)) {
    if (segment.id) {
      ids.push_back(*segment.id);
      continue;
    }
    const std::vector<ByteRange> literal = ranges_within(options.literal, segment.begin, segment.end);
    within.literal = literal;
    encode_plain(text.substr(segment.begin, segment.end - segment.begin), segment.begin == 0, within, ids);
  }
  return post_processor_.apply(std::move(ids), options.add_special_tokens);
}

std::vector<TextSegment> JsonTokenizer::split_at_added(std::string_view text,
                                                       const EncodeOptions& options) const {
  if (raw_matcher_.empty() && !text.empty()) return {{0, text.size(), std::nullopt}};
  return raw_matcher_.split(text, options.parse_special, options.literal);
}

std::vector<TokenId> JsonTokenizer::encode_between(std::string_view text, bool at_start,
                                                   const EncodeOptions& options) const {
  check_utf8_input(text);
  std::vector<TokenId> ids;
  encode_plain(text, at_start, options, ids);
  return ids;
}

// The ranges of `text` as ranges of what normalisation made of it. An edge is where the normalised text stops
// to be that of what stands before the edge alone, so a character that was composed across it is literal.
std::vector<ByteRange> JsonTokenizer::normal_literals(std::string_view text, const NormalText& normal,
                                                      bool at_start,
                                                      std::span<const ByteRange> literal) const {
  const auto edge = [&](std::size_t at, bool is_end) {
    if (at == text.size()) return normal.text.size();
    if (at == 0) return std::size_t{0};
    NormalText before{std::string(text.substr(0, at)), at_start};
    normalizer_->apply(before);
    const auto parted =
        std::mismatch(before.text.begin(), before.text.end(), normal.text.begin(), normal.text.end());
    const auto common = static_cast<std::size_t>(parted.first - before.text.begin());
    return is_end ? std::max(common, std::min(before.text.size(), normal.text.size())) : common;
  };
  std::vector<ByteRange> out;
  for (const ByteRange& range : literal) out.push_back({edge(range.begin, false), edge(range.end, true)});
  return out;
}

void JsonTokenizer::encode_plain(std::string_view text, bool at_start, const EncodeOptions& options,
                                 std::vector<TokenId>& out) const {
  const std::string_view raw = text;
  NormalText normal{{}, at_start};
  if (normalizer_) {
    normal.text = text;
    normalizer_->apply(normal);
    text = normal.text;
  }
  if (normal_matcher_.empty()) {
    encode_normal(text, normal.at_start, out);
    return;
  }
  std::vector<TextSegment> segments = normal_matcher_.split(text, options.parse_special, {});
  const bool has_special = std::any_of(segments.begin(), segments.end(), [&](const TextSegment& segment) {
    return segment.id && is_special(*segment.id);
  });
  if (has_special && !options.literal.empty()) {
    const std::vector<ByteRange> literal =
        normalizer_ ? normal_literals(raw, normal, at_start, options.literal)
                    : std::vector<ByteRange>(options.literal.begin(), options.literal.end());
    segments = normal_matcher_.split(text, options.parse_special, literal);
  }
  for (const TextSegment& segment : segments) {
    if (segment.id) {
      out.push_back(*segment.id);
    } else {
      encode_normal(text.substr(segment.begin, segment.end - segment.begin),
                    normal.at_start && segment.begin == 0, out);
    }
  }
}

void JsonTokenizer::encode_normal(std::string_view text, bool at_start, std::vector<TokenId>& out) const {
  if (text.empty()) return;
  if (pre_tokenizer_.steps.empty()) {
    model_->tokenize(text, out);
    return;
  }
  Pieces pieces;
  pieces.list.push_back({text, at_start});
  for (const auto& step : pre_tokenizer_.steps) step->apply(pieces);
  for (const Piece& piece : pieces.list) model_->tokenize(piece.text, out);
}

std::string JsonTokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const TokenId id : ids) {
    const auto added = added_.find(id);
    if (added == added_.end()) {
      tokens.push_back(model_token(id));
    } else if (!skip_special || !added->second.token.special) {
      // As it would stand in the normalised text, which is what the decoder undoes.
      tokens.push_back(added->second.normal);
    }
  }
  if (!decoder_) return join(tokens, " ");
  decoder_->apply(tokens);
  return join(tokens, "");
}

}  // namespace

std::shared_ptr<const Tokenizer> make_tokenizer_json(const Json& json, const FolderConfig& config,
                                                     const std::string& where, std::string description,
                                                     std::string fingerprint) {
  const JsonView view(json, where);
  return std::make_shared<JsonTokenizer>(view, config, std::move(description), std::move(fingerprint));
}

}  // namespace lorikeet::text
