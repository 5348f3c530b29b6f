#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lorikeet::text {

using TokenId = std::int32_t;

/// Bytes [begin, end) of a text.
struct ByteRange {
  std::size_t begin;
  std::size_t end;
};

/// A stretch of text: an added token's, or the text between two.
struct TextSegment {
  std::size_t begin;
  std::size_t end;
  std::optional<TokenId> id;
};

struct EncodeOptions {
  /// Lets the post-processor add what it adds (usually BOS); false gives the bare text's ids.
  bool add_special_tokens = true;
  /// Recognises special tokens ("<|eot_id|>") inside the text. False for text that must not be able to
  /// speak the control tokens: what users and data rows say. Added tokens that are not special are words of
  /// the vocabulary, and always recognised.
  bool parse_special = true;
  /// With parse_special: where special tokens are not recognised all the same, because a row of data wrote
  /// the text. One that overlaps such a range stays text. In order, without overlap.
  std::span<const ByteRange> literal{};
};

/// The chat templates that a tokenizer's files carry, and the variables that go with them.
struct TemplateSources {
  /// tokenizer_config.json's, of named ones "default", or chat_template.jinja.
  std::optional<std::string> main{};
  /// The one named "tool_use", for rows with tools.
  std::optional<std::string> with_tools{};
  /// Named special tokens: {"bos_token", "<s>"}.
  std::vector<std::pair<std::string, std::string>> tokens{};
};

/// Text to token ids and back. Immutable after loading: any number of threads may use one at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Ids of `text`, which must be UTF-8 (throws Error otherwise).
  virtual std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const = 0;

  /// Cuts `text` at the added tokens that are looked for in the text as it comes; the segments cover it.
  /// What `encode_between` gives for those between, with the others' ids, are the ids of the whole text.
  virtual std::vector<TextSegment> split_at_added(std::string_view text,
                                                  const EncodeOptions& options) const = 0;

  /// Ids of a stretch between such tokens, or of its beginning; `at_start` where it begins the whole text.
  /// Never adds special tokens; `options.literal` counts from the stretch's begin.
  virtual std::vector<TokenId> encode_between(std::string_view text, bool at_start,
                                              const EncodeOptions& options) const = 0;

  /// Text of `ids`; special tokens are left out when `skip_special`. Throws Error for an id that isn't there.
  /// Bytes that are not UTF-8 (a cut sequence) come out as U+FFFD.
  virtual std::string decode(std::span<const TokenId> ids, bool skip_special) const = 0;

  /// The id of a token by its exact vocabulary spelling.
  virtual std::optional<TokenId> id_of(std::string_view token) const = 0;
  /// The vocabulary spelling of an id; throws Error for an id that isn't there.
  virtual std::string token_of(TokenId id) const = 0;
  virtual bool is_special(TokenId id) const = 0;

  /// One more than the largest id.
  std::size_t vocab_size() const { return vocab_size_; }

  /// From tokenizer_config.json / special_tokens_map.json / the model file; nullopt where none is named.
  std::optional<TokenId> bos_id() const { return bos_; }
  std::optional<TokenId> eos_id() const { return eos_; }

  /// The checkpoint's chat template source, if it has one (tokenizer_config.json or chat_template.jinja).
  const std::optional<std::string>& chat_template() const { return templates_.main; }
  const TemplateSources& templates() const { return templates_; }

  /// "tokenizer.json" or "tokenizer.model", and why where both were there: for the run to say.
  const std::string& description() const { return description_; }

  /// sha256 over all that decides ids: the files' bytes.
  const std::string& fingerprint() const { return fingerprint_; }

 protected:
  Tokenizer(TemplateSources templates, std::string description, std::string fingerprint)
      : templates_(std::move(templates)),
        description_(std::move(description)),
        fingerprint_(std::move(fingerprint)) {}

  std::optional<TokenId> bos_, eos_;
  std::size_t vocab_size_ = 0;

 private:
  TemplateSources templates_;
  std::string description_, fingerprint_;
};

/// Loads the tokenizer of a folder: `tokenizer.json` wins over `tokenizer.model`; special tokens from
/// `tokenizer_config.json` and `special_tokens_map.json`. Throws Error naming the file and component for
/// anything absent, malformed or unsupported.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& folder);

}  // namespace lorikeet::text
