#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "text/answer_finder.h"
#include "text/chat_encode.h"
#include "text/chat_template.h"
#include "text/jinja_chat.h"
#include "text/tokenizer.h"

namespace lorikeet::text {

/// Rows as token ids, by one template (built in, or in Jinja) and one tokenizer. Thread-safe.
///
/// By a Jinja template the ids are those of transformers' apply_chat_template, see encode_marked; by a
/// built-in one they are those of SegmentEncoder.
class PromptEncoder {
 public:
  /// `chosen` may hold no template, for documents alone. `tokenizer` must outlive the encoder. Throws Error
  /// where a built-in's control tokens aren't in the vocabulary.
  PromptEncoder(const ChosenTemplate& chosen, const Tokenizer& tokenizer);
  PromptEncoder(const PromptEncoder&) = delete;
  PromptEncoder& operator=(const PromptEncoder&) = delete;

  /// A row with its answers. Throws Error for rows that the template can't express.
  EncodedPrompt encode(const Conversation& row, TrainOn train_on) const;
  EncodedPrompt encode(const Instruction& row, TrainOn train_on) const;

  /// What the model is given to answer: the messages, or the row without its output, with what opens the
  /// assistant's turn. Throws Error where the template writes nothing of a message.
  std::vector<TokenId> question(const Conversation& row) const;
  std::vector<TokenId> question(const Instruction& row) const;

  /// `text` as a whole document: BOS, text, EOS, as far as the tokenizer has them.
  std::vector<TokenId> encode_document(std::string_view text) const {
    return segments_.encode_document(text);
  }

  const Tokenizer& tokenizer() const { return segments_.tokenizer(); }

 private:
  const ChatTemplate& builtin() const;

  SegmentEncoder segments_;
  const ChatTemplate* builtin_;
  std::shared_ptr<const JinjaChat> jinja_;
  std::optional<AnswerFinder> answers_;  // of jinja_
};

}  // namespace lorikeet::text
