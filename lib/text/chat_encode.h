#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lorikeet::text {

struct EncodedPrompt {
  std::vector<TokenId> ids;
  std::vector<std::uint8_t> trained;  ///< 1 where the model is to say the token; as long as `ids`
  bool leaves_out_something = false;  ///< see text::leaves_out_something
};

/// Turns rendered segments into ids.
///
/// Control tokens go in by id. Text is encoded without special tokens and without looking for any in it.
/// Neighbouring text with the same `trained` flag is encoded as one piece; prompt text and answer text are
/// encoded apart, so the edge of the loss never falls inside a token and a prompt has the ids that it will
/// have at inference, where the answer isn't there yet. Where a tokenizer puts a space before every text
/// (sentencepiece's dummy prefix), an answer that continues a text gets none: its ids are those it would have
/// inside the whole. Behind a control token it is done as the tokenizer itself does it in the middle of a
/// text, behind a BOS as at the start of one. A BOS is never doubled. Thread-safe.
class SegmentEncoder {
 public:
  /// `tokenizer` must outlive the encoder. Finds out by trial where the tokenizer adds a prefix.
  explicit SegmentEncoder(const Tokenizer& tokenizer);

  /// Throws Error when a control token is missing from the vocabulary, or an EOS is needed and none is named.
  EncodedPrompt encode(std::span<const Segment> segments) const;

  /// `text` as a whole document: BOS, text, EOS, as far as the tokenizer has them.
  std::vector<TokenId> encode_document(std::string_view text) const;

  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  std::vector<TokenId> plain(std::string_view text) const;
  std::vector<TokenId> continued(std::string_view text) const;
  TokenId control_id(const Segment& segment) const;

  const Tokenizer& tokenizer_;
  bool prefix_after_text_ = false;    // a text encoded alone differs from the same text after other text
  bool prefix_after_control_ = true;  // the tokenizer adds its prefix behind a control token, too
};

}  // namespace lorikeet::text
