// Whether a built-in template and a Jinja one are the same, by what they write.
#include <span>
#include <string>

#include "base/error.h"
#include "text/chat_template.h"
#include "text/jinja_chat.h"

namespace lorikeet::text {
namespace {

std::string token_named(const TemplateSources& sources, const std::string& name) {
  for (const auto& [known, token] : sources.tokens)
    if (known == name) return token;
  return "";
}

std::string spell(const std::vector<Segment>& segments, const std::string& bos, const std::string& eos) {
  using Kind = Segment::Kind;
  std::string out;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    if (segment.kind == Kind::kEos) {
      out += eos;
    } else if (segment.kind == Kind::kBos) {
      const bool doubled =
          i + 1 < segments.size() && segments[i + 1].kind == Kind::kToken && segments[i + 1].text == bos;
      if (!doubled) out += bos;
    } else {
      out += segment.text;
    }
  }
  return out;
}

bool same_text(const ChatTemplate& builtin, const JinjaChat& jinja, std::span<const Message> messages,
               const std::string& bos, const std::string& eos) {
  // A prompt opens an answer, so it stands behind a user's turn.
  const bool prompt = messages.back().role == "user";
  return jinja.render(JinjaChat::values_of(messages), Json(), prompt).bytes() ==
         spell(builtin.render(messages, prompt), bos, eos);
}

}  // namespace

bool renders_like(const ChatTemplate& builtin, const TemplateSources& sources, const std::string& date) {
  static const std::vector<Message> kTalk{{"system", " \n be kind \n"},
                                          {"user", " \n hello \n"},
                                          {"assistant", " \n hi \n"},
                                          {"user", " and? "},
                                          {"assistant", " bye "}};
  const std::span all(kTalk);
  const std::string bos = token_named(sources, "bos_token"), eos = token_named(sources, "eos_token");
  try {
    const JinjaChat jinja(sources, date);
    for (const auto messages :
         {all.first(2), all.first(3), all, all.subspan(1, 1), all.subspan(1, 2), all.subspan(1)})
      if (!same_text(builtin, jinja, messages, bos, eos)) return false;
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace lorikeet::text
