// Any bytes as a chat template, rendered over one conversation within small bounds: a text in UTF-8 whose
// runs cover it, or an Error.
#include "base/json.h"
#include "base/strings.h"
#include "fuzz.h"
#include "text/jinja/template.h"

using namespace lorikeet;
using namespace lorikeet::text::jinja;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Json kMessages = Json::parse(
      R"([{"role": "user", "content": "a \"b\""}, {"role": "assistant", "content": null, "n": 2, "l": [1, {"k": 1.5}]}])",
      "messages");
  const std::vector<std::pair<std::string, Value>> variables{
      {"messages", Value::from_json(kMessages, kFromRow)},
      {"bos_token", Value::text("<s>")},
      {"n", Value(std::int64_t{3})}};
  RenderOptions options;
  options.limits.steps = 20'000;
  options.limits.bytes = std::size_t{1} << 20;
  options.limits.depth = 300;
  const auto text =
      fuzz::accepted([&] { return Template(fuzz::view(data, size)).render(variables, options); });
  if (!text) return 0;
  fuzz::require(is_utf8(text->bytes()));
  fuzz::require(text->runs().empty() ? text->empty() : text->runs().back().end == text->size());
  return 0;
}
