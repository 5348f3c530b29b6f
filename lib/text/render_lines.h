#pragma once

#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/folder_config.h"
#include "text/jinja/template.h"

namespace lorikeet::text {

/// A chat template with all that it may read beside the messages, as transformers' apply_chat_template gives
/// it.
class ConversationRenderer {
 public:
  struct Options {
    /// Named special tokens of the tokenizer: {"bos_token", "<s>"}.
    std::vector<std::pair<std::string, std::string>> tokens{};
    Json tools{};  ///< null, or an array of objects
    bool add_generation_prompt = false;
    jinja::RenderOptions render{};
  };

  /// Throws Error for a template that can't be parsed, tools of another form and a date that doesn't exist.
  ConversationRenderer(std::string_view source, Options options);

  /// The text of a conversation: an array of messages, which are objects. Members that are null are left out,
  /// and reasoning is found by any of its names ("reasoning_content", "thinking", "reasoning"), as
  /// transformers has it. Throws Error for anything else and for what the template refuses.
  jinja::MarkedText render(const JsonView& conversation) const;

 private:
  jinja::Template template_;
  Options options_;
  std::vector<std::pair<std::string, jinja::Value>> variables_;
};

/// The template of a folder that apply_chat_template takes: with tools the one named "tool_use", where there
/// is one, else "default". Throws Error, beginning with `where`, if there is none.
const std::string& folder_template(const FolderConfig& config, bool with_tools, const std::string& where);

/// Reads a conversation a line from `in`, as JSON, and writes its text as a JSON string a line to `out`.
/// Throws Error naming the line; what stands before that line is already written.
void render_lines(const ConversationRenderer& renderer, std::istream& in, std::ostream& out);

}  // namespace lorikeet::text
