#include "models/golden_config.h"

#include "base/file.h"
#include "models/registry.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"

namespace lorikeet::test {
namespace {

void change(Json& json, const std::string& key, const Json& value) {
  constexpr std::string_view kNested = "text_config.";
  if (key.starts_with(kNested)) {
    Json nested = *json.find("text_config");
    change(nested, key.substr(kNested.size()), value);
    json.set("text_config", nested);
  } else if (value.is_string() && value.string() == "absent") {
    std::erase_if(json.object(), [&key](const Json::Member& m) { return m.first == key; });
  } else {
    json.set(key, value);
  }
}

}  // namespace

nn::CausalLMSpec spec_of(const std::string& variant, const std::string& changes) {
  const auto path = source_dir() / "tests/parity/goldens/families" / variant;
  Json json = Json::parse(read_file(path), variant);
  const Json changes_of_keys = Json::parse(changes, "changes");
  for (const auto& [key, value] : changes_of_keys.object()) change(json, key, value);
  return models::model_spec(JsonView(json, "config.json"));
}

void check_refused(const std::vector<Refused>& cases) {
  for (const Refused& refused : cases) {
    CAPTURE(refused.variant, refused.changes);
    const std::string error = error_text([&] { spec_of(refused.variant, refused.changes); });
    CHECK_THAT(error, Catch::Contains("config.json") && Catch::Contains(refused.key));
  }
}

}  // namespace lorikeet::test
