#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/chat_template.h"
#include "text/jinja/template.h"
#include "text/tokenizer.h"

namespace lorikeet::text {

/// A message as transformers gives it to a template: without members that are null, and with reasoning under
/// both of the names that templates read ("reasoning_content", "thinking"), whichever it has. `message` is an
/// object.
Json as_templates_read(const Json& message);

/// A checkpoint's chat template in Jinja, with what transformers' apply_chat_template gives it besides the
/// messages. Immutable: any number of threads may use one at once.
class JinjaChat {
 public:
  using Values = std::vector<jinja::Value>;

  /// `sources.main` must be there. `date` is the day that strftime_now writes. Throws Error naming line and
  /// column for a template that can't be parsed, and for a date that doesn't exist.
  JinjaChat(const TemplateSources& sources, const std::string& date);

  /// The messages of a conversation as the template sees them. Text of message i, but for the names of usual
  /// roles, which templates make control tokens of, has the origin
  /// tagged_origin(1 + i % 63).
  static Values values_of(std::span<const Message> messages);

  /// The text of these messages, ended by what opens the assistant's turn where `generation_prompt` is set.
  /// `tools` is null or an array. Throws Error naming line and column for what the template refuses.
  jinja::MarkedText render(std::span<const jinja::Value> messages, const Json& tools,
                           bool generation_prompt) const;

  /// The texts in quotes of the template for rows without tools that it may look for in a content
  /// ("</think>"): those of three bytes or more with a punctuation mark, other than those that it only
  /// writes. Names of roles are none.
  const std::vector<std::string>& literals() const { return literals_; }

  /// True if the template for rows with or without tools marks the answers by {% generation %} blocks.
  bool has_generation(const Json& tools) const { return template_for(tools).has_generation(); }

 private:
  const jinja::Template& template_for(const Json& tools) const;

  jinja::Template main_;
  std::unique_ptr<const jinja::Template> with_tools_;
  std::vector<std::string> literals_;
  jinja::RenderOptions options_;
  std::vector<std::pair<std::string, jinja::Value>> variables_;
};

/// Whether `rendered` has nothing of the content of one of the messages, of those that have any: a template
/// may leave out roles that it doesn't know. Messages 63 apart count as one.
bool leaves_out_content(std::span<const Message> messages, const jinja::MarkedText& rendered);

/// Whether `rendered` lacks what the row has: templates leave out roles that they don't know, and may know
/// nothing of tools or reasoning, or drop it. That is a message of whose content nothing is there (beside
/// tool calls, not its first line), an answer that `train_on` names of which a part isn't there (as of
/// reasoning in its content; white space doesn't count), a tool or a tool call whose function is named
/// nowhere, or the reasoning of the last message, if that is the assistant's and has it in a member of its
/// own. Messages 63 apart count as one.
bool leaves_out_something(const Conversation& row, const jinja::MarkedText& rendered, TrainOn train_on);

/// The number of the message that a run of text with this tag is from, of `count`; of those that share the
/// tag the one nearest to `near`. The tag isn't 0.
std::size_t message_of_tag(std::size_t tag, std::size_t near, std::size_t count);

}  // namespace lorikeet::text
