#pragma once

#include <map>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text/jinja_chat.h"
#include "text/tokenizer.h"

namespace lorikeet::text {

/// Finds in a rendered conversation what the assistant says: from where the template's generation prompt
/// ends, through the token that ends the turn. Thread-safe.
///
/// A template with {% generation %} blocks says so itself. For others two more texts are rendered: the
/// messages before the turn with a generation prompt, and those through the turn. Both must be what the whole
/// begins with, as far as the turn's own text goes. A turn ends behind the first EOS that the template writes
/// after the turn's text, else behind the first special token there, else where the next turn begins.
///
/// Rows of the same shape are rendered once: those of the same roles whose messages are only a role and a
/// text. What is remembered must hold for every such row, so rows that a template may write otherwise because
/// of what they say (with tools, other members, an empty text, or a text that the template looks for) are
/// always rendered.
class AnswerFinder {
 public:
  /// Both must outlive it.
  AnswerFinder(const JinjaChat& chat, const Tokenizer& tokenizer) : chat_(chat), tokenizer_(tokenizer) {}

  /// The ranges of `whole`, which is the rendering of `values`, that are trained on: of `conversation`'s
  /// messages those that are the assistant's and trained, or of these the last alone. Throws Error naming the
  /// turn where the template writes it otherwise in the whole than where it is the last.
  std::vector<ByteRange> find(const Conversation& conversation, const JinjaChat::Values& values,
                              const jinja::MarkedText& whole, bool only_last) const;

 private:
  struct Split {
    std::size_t before;  // bytes of the range before the turn's text
    std::size_t behind;
    std::string opened;  // what the generation prompt has where the turn's text begins
  };
  struct Row;

  std::vector<ByteRange> generated(const Row& row, bool only_last) const;
  ByteRange answer(const Row& row, std::size_t i) const;
  ByteRange rendered_answer(const Row& row, std::size_t i, std::size_t next, std::string& opened) const;
  [[noreturn]] void fail_by_prompt(const Row& row, std::size_t i, const jinja::MarkedText& asked,
                                   std::size_t from) const;
  std::string shape_of(const Conversation& conversation) const;
  std::size_t end_of_turn(std::string_view text, std::size_t from, std::size_t limit) const;

  const JinjaChat& chat_;
  const Tokenizer& tokenizer_;
  mutable std::shared_mutex mutex_;
  mutable std::map<std::string, Split, std::less<>> known_;
};

}  // namespace lorikeet::text
