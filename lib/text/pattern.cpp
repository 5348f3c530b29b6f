#include "text/pattern.h"

namespace lorikeet::text {

std::string Pattern::replace(std::string_view text, std::string_view content) const {
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for_each_match(text, [&](std::size_t begin, std::size_t end) {
    out += text.substr(done, begin - done);
    out += content;
    done = end;
  });
  out += text.substr(done);
  return out;
}

Pattern read_pattern(const JsonView& json) {
  if (const auto literal = json.maybe("String")) {
    if (literal->as_string().empty()) literal->fail("a literal that is not empty");
    return Pattern(literal->as_string());
  }
  if (const auto expression = json.maybe("Regex")) {
    return Pattern(Regex::from_oniguruma(expression->as_string(), expression->where()));
  }
  json.fail("{\"String\": ...} or {\"Regex\": ...}");
}

}  // namespace lorikeet::text
