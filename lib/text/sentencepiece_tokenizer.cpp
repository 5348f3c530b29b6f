#include "text/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "text/sentencepiece_check.h"
#include "text/sentencepiece_models.h"
#include "text/unicode.h"
#include "text/utf8_input.h"
#include "text/vocabulary.h"

namespace lorikeet::text {
namespace {

using Type = SentencePieceSummary::Type;

// normalizer_spec { add_dummy_prefix: false }: protobuf merges a message that comes twice, the later wins.
constexpr std::string_view kNoPrefixPatch("\x1A\x02\x18\x00", 4);

std::unique_ptr<sentencepiece::SentencePieceProcessor> load_processor(const std::string& bytes,
                                                                      const std::string& where) {
  auto processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
  std::string message;
  try {
    const auto status = processor->LoadFromSerializedProto(bytes);
    if (status.ok()) return processor;
    message = status.ToString();
  } catch (const std::exception& error) {
    message = error.what();
  }
  throw Error("[" + where + "] the sentencepiece library refuses the model: " + escape_control(message));
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string_view bytes, const FolderConfig& config, const std::string& where,
                         std::string description, std::string fingerprint)
      : Tokenizer(templates_of(config), std::move(description), std::move(fingerprint)) {
    SentencePieceSummary summary = check_sentencepiece_model(bytes, where);
    processor_ = load_processor(std::string(bytes), where);
    if (!config.legacy)
      bare_processor_ = load_processor(std::string(bytes) + std::string(kNoPrefixPatch), where);
    is_unigram_ = summary.is_unigram;
    adds_prefix_ = summary.add_dummy_prefix;
    normalizes_ = !has_plain_normalizer(summary);
    if (is_unigram_) {
      model_ = make_unigram_of(summary, where);
    } else if (!normalizes_) {
      model_ = make_bpe_of(summary, where);
    }
    types_.reserve(summary.pieces.size());
    for (auto& piece : summary.pieces) {
      vocabulary_.add(std::move(piece.text), static_cast<std::int64_t>(types_.size()), where);
      types_.push_back(piece.type);
    }
    vocab_size_ = types_.size();
    add_tokens(config);
    bos_ = special_id(config.bos_token, processor_->bos_id());
    eos_ = special_id(config.eos_token, processor_->eos_id());
    adds_bos_ = config.add_bos_token.value_or(true) && bos_;
    adds_eos_ = config.add_eos_token.value_or(false) && eos_;
  }

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override;
  std::vector<TextSegment> split_at_added(std::string_view text,
                                          const EncodeOptions& options) const override {
    return matcher_.split(text, options.parse_special, options.literal);
  }
  std::vector<TokenId> encode_between(std::string_view text, bool at_start,
                                      const EncodeOptions& /*options*/) const override {
    check_utf8_input(text);
    std::vector<TokenId> ids;
    if (!text.empty()) encode_plain(text, at_start, ids);
    return ids;
  }
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override;

  std::optional<TokenId> id_of(std::string_view token) const override {
    const auto added = added_ids_.find(std::string(token));
    return added != added_ids_.end() ? std::optional(added->second) : vocabulary_.id_of(token);
  }
  std::string token_of(TokenId id) const override {
    check_id(id);
    const auto added = added_.find(id);
    return added != added_.end() ? added->second.content : *vocabulary_.token_of(id);
  }
  bool is_special(TokenId id) const override {
    const auto added = added_.find(id);
    if (added != added_.end()) return added->second.special;
    return is_piece(id) && (type_of(id) == Type::kControl || type_of(id) == Type::kUnknown);
  }

 private:
  bool is_piece(TokenId id) const { return id >= 0 && static_cast<std::size_t>(id) < types_.size(); }
  Type type_of(TokenId id) const { return types_[static_cast<std::size_t>(id)]; }

  void check_id(TokenId id) const {
    if (is_piece(id) || added_.contains(id)) return;
    throw Error("[tokenizer] there is no token with id " + std::to_string(id) + " (vocabulary size " +
                std::to_string(vocab_size_) + ")");
  }

  std::optional<TokenId> special_id(const std::optional<std::string>& named, int in_model) const {
    if (named) return id_of(*named);
    return in_model >= 0 ? std::optional<TokenId>(in_model) : std::nullopt;
  }

  // Without the model's leading space where `prefix` is false.
  const sentencepiece::SentencePieceProcessor& processor(bool prefix) const {
    return prefix || !bare_processor_ ? *processor_ : *bare_processor_;
  }

  void encode_plain(std::string_view text, bool prefix, std::vector<TokenId>& out) const;
  void add_tokens(const FolderConfig& config);
  void add_token(AddedToken token);

  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> bare_processor_;  // null in legacy mode
  std::unique_ptr<Model> model_;  // our own, see encode_plain; null where the library does it all
  bool is_unigram_ = false;
  bool adds_prefix_ = false;
  bool normalizes_ = false;  // by more than spaces
  Vocabulary vocabulary_;
  std::vector<Type> types_;
  std::unordered_map<std::string, TokenId> added_ids_;
  std::unordered_map<TokenId, AddedToken> added_;
  AddedTokenMatcher matcher_;
  bool adds_bos_ = false;
  bool adds_eos_ = false;
};

void SentencePieceTokenizer::add_token(AddedToken token) {
  vocab_size_ = std::max(vocab_size_, static_cast<std::size_t>(token.id) + 1);
  added_ids_[token.content] = token.id;
  matcher_.add(token.content, token);
  added_.insert_or_assign(token.id, std::move(token));
}

void SentencePieceTokenizer::add_tokens(const FolderConfig& config) {
  for (const AddedToken& token : config.added_tokens) add_token(token);
  std::vector<std::string> names = config.special_tokens;
  if (names.empty()) {  // no file names any: the model's own
    for (const int id : {processor_->unk_id(), processor_->bos_id(), processor_->eos_id()}) {
      if (id >= 0) names.push_back(processor_->IdToPiece(id));
    }
  }
  for (const std::string& name : names) {
    const auto id = vocabulary_.id_of(name);
    if (!id || added_ids_.contains(name)) continue;  // without an id it has no embedding either
    AddedToken token;
    token.id = *id;
    token.content = name;
    token.special = true;
    add_token(std::move(token));
  }
}

// Three ways, which give the ids of the library's current versions:
// - Where normalising means no more than writing spaces as marks (Llama 2 and its kin), our own model does it
//   all, ten times as fast as the library.
// - A BPE with more to normalise goes through the library.
// - So does a unigram, but only to normalise: Debian's version 0.1.97 compares sums in double with sums in
//   float, and cuts runs of equal scores otherwise than later versions. Its pieces give the normalised text,
//   which is cut again, all in float.
void SentencePieceTokenizer::encode_plain(std::string_view text, bool prefix,
                                          std::vector<TokenId>& out) const {
  if (model_ && !normalizes_) {
    model_->tokenize(mark_spaces(text, adds_prefix_ && (prefix || !bare_processor_)), out);
    return;
  }
  const auto run = [&](auto* result) {
    const auto status = processor(prefix).Encode({text.data(), text.size()}, result);
    if (!status.ok()) throw Error("[tokenizer] sentencepiece: " + status.ToString(), ErrorKind::kRunFailed);
  };
  if (!is_unigram_) {
    std::vector<int> ids;
    run(&ids);
    out.insert(out.end(), ids.begin(), ids.end());
    return;
  }
  std::vector<std::string> pieces;
  run(&pieces);
  std::string normal;
  for (const std::string& piece : pieces) {
    const TokenId id = vocabulary_.id_of(piece).value_or(-1);
    if (is_piece(id) && type_of(id) == Type::kByte) {
      normal += static_cast<char>(byte_of_piece(piece));
    } else {
      normal += piece;
    }
  }
  model_->tokenize(normal, out);
}

std::vector<TokenId> SentencePieceTokenizer::encode(std::string_view text,
                                                    const EncodeOptions& options) const {
  check_utf8_input(text);
  std::vector<TokenId> ids;
  if (options.add_special_tokens && adds_bos_) ids.push_back(*bos_);
  for (const TextSegment& segment : split_at_added(text, options)) {
    if (segment.id) {
      ids.push_back(*segment.id);
      continue;
    }
    const std::string_view plain = text.substr(segment.begin, segment.end - segment.begin);
    encode_plain(plain, segment.begin == 0, ids);
  }
  if (options.add_special_tokens && adds_eos_) ids.push_back(*eos_);
  return ids;
}

std::string SentencePieceTokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string out;
  std::vector<int> run;
  bool first = true;  // nothing but BOS has come yet, so that a leading space is the model's own
  const auto flush = [&] {
    if (run.empty()) return;
    std::string text;
    const auto status = processor(first).Decode(run, &text);
    if (!status.ok()) throw Error("[tokenizer] sentencepiece: " + status.ToString(), ErrorKind::kRunFailed);
    out += text;
    run.clear();
    first = false;
  };
  for (const TokenId id : ids) {
    check_id(id);
    if (skip_special && is_special(id)) {
      flush();
      if (id != bos_) first = false;
      continue;
    }
    const bool by_library = is_piece(id) && type_of(id) != Type::kControl &&
                            (!added_.contains(id) || type_of(id) == Type::kUnknown);
    if (by_library) {
      run.push_back(id);
      continue;
    }
    flush();
    out += token_of(id);
    if (id != bos_) first = false;
  }
  flush();
  return to_utf8_lossy(out);
}

}  // namespace

std::shared_ptr<const Tokenizer> make_sentencepiece_tokenizer(std::string_view bytes,
                                                              const FolderConfig& config,
                                                              const std::string& where,
                                                              std::string description,
                                                              std::string fingerprint) {
  return std::make_shared<SentencePieceTokenizer>(bytes, config, where, std::move(description),
                                                  std::move(fingerprint));
}

}  // namespace lorikeet::text
