#include "text/chat_jinja.h"

#include <set>

#include "support/catch.h"

using namespace lorikeet;
using text::RowKind;

// That the sources render what Lorikeet trains on is tests/parity/chat_template_parity.py's to show: it takes
// a Jinja engine.

TEST_CASE("each built-in is recognised by the Jinja source written for it, with its kind of rows") {
  std::set<std::string> sources;
  for (const text::ChatTemplate& builtin : text::builtin_chat_templates()) {
    for (const RowKind rows : {RowKind::kConversation, RowKind::kInstruction}) {
      CAPTURE(builtin.name);
      const std::string source = text::chat_template_jinja(builtin, rows);
      sources.insert(source);
      for (const std::string& written : {source, source + "\n", source + "\r\n"}) {
        const auto known = text::template_of_source({.main = written}, "a file's", "2024-07-26");
        CHECK(known.chat_template == &builtin);
        if (builtin.name == "alpaca") CHECK(known.rows == rows);
      }
      CHECK(text::template_of_source({.main = source + " "}, "a file's", "2024-07-26").jinja != nullptr);
    }
  }
  CHECK(sources.size() == text::builtin_chat_templates().size() + 1);  // alpaca's two
}

TEST_CASE("a recognised source stays as it is, but where rows were written otherwise") {
  const auto& builtins = text::builtin_chat_templates();
  for (const text::ChatTemplate& builtin : builtins) {
    const text::ChosenTemplate own{.chat_template = &builtin, .source = "{# theirs #}"};
    CHECK(text::jinja_of(own, RowKind::kConversation) == "{# theirs #}");
    const bool is_alpaca = builtin.name == "alpaca";
    CHECK(text::jinja_of(own, RowKind::kInstruction) ==
          (is_alpaca ? text::chat_template_jinja(builtin, RowKind::kInstruction) : "{# theirs #}"));
    const text::ChosenTemplate by_name{.chat_template = &builtin};
    CHECK(text::jinja_of(by_name, RowKind::kConversation) ==
          text::chat_template_jinja(builtin, RowKind::kConversation));
  }
}
