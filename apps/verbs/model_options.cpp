#include "apps/verbs/model_options.h"

#include "config/config.h"
#include "io/checkpoint.h"

namespace lorikeet::apps {

config::Settings verb_settings(const std::string& model, const std::vector<std::string>& overrides) {
  io::require_model_folder(model);
  std::vector<std::string> all{config::make_override("model.path", model)};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return config::parse_settings("", "command line", all);
}

}  // namespace lorikeet::apps
