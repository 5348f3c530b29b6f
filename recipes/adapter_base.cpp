#include "recipes/adapter_base.h"

#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/fingerprint.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strings.h"
#include "recipes/adapter_template.h"
#include "recipes/base_record.h"

namespace lorikeet::recipes {

void warn_if_other_base(const std::filesystem::path& model, const std::filesystem::path& adapter,
                        const ModelSession& session) {
  const std::filesystem::path file = run_of_adapter(adapter) / "run.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return;
  std::string differs;
  try {
    const Json json = Json::parse(read_file(file), file.string());
    const JsonView there = JsonView(json, file.string()).at("identity");
    const auto both = comparable_fingerprints(there.at("model").as_string(),
                                              versioned_fingerprint(1, session.checkpoint_fingerprint));
    if (!both || both->first == both->second) return;
    if (const auto architecture = there.maybe("architecture"))
      differs = architecture_difference(*architecture, session.architecture);
  } catch (const Error&) {  // a record that can't be read says nothing
    return;
  }
  log_warning("the adapter '" + escape_control(adapter.string()) +
              "' was trained on other weights than those of '" + escape_control(model.string()) + "'" +
              (differs.empty() ? "" : " (" + escape_control(differs) + ")") +
              "; unless this is the same model stored in another way, what it adds is worthless here");
}

}  // namespace lorikeet::recipes
