#include "models/bare_floats.h"

#include <cctype>

namespace lorikeet::models {
namespace {

constexpr std::string_view kWords[] = {"-Infinity", "Infinity", "NaN"};

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The word that stands at `at` by itself; empty where there is none.
std::string_view word_at(std::string_view text, std::size_t at) {
  if (at > 0 && in_word(text[at - 1])) return {};
  for (const std::string_view word : kWords) {
    const std::size_t end = at + word.size();
    if (text.substr(at, word.size()) == word && (end == text.size() || !in_word(text[end]))) return word;
  }
  return {};
}

}  // namespace

std::string name_bare_floats(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (in_string && text[i] == '\\' && i + 1 < text.size()) {
      out += text.substr(i++, 2);
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    const std::string_view word = in_string ? std::string_view() : word_at(text, i);
    if (word.empty()) {
      out += text[i];
    } else {
      out += R"({"__float__": ")";
      out += word;
      out += "\"}";
      i += word.size() - 1;
    }
  }
  return out;
}

}  // namespace lorikeet::models
