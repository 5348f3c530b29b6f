#include "apps/verbs/model_options.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/strings.h"
#include "config/config.h"
#include "io/checkpoint.h"

namespace lorikeet::apps {
namespace {

using Names = std::vector<std::string>;

Names operator+(Names names, const Names& more) {
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

// What each verb reads: names of settings, or of sections of which it reads everything.
const std::map<std::string_view, Names>& settings_read() {
  static const Names compute{"device",
                             "precision.preset",
                             "precision.base_storage",
                             "precision.compute",
                             "precision.adapter",
                             "precision.matmul",
                             "training.deterministic"};
  static const Names chat_template{"data.chat_template", "data.template_date"};
  static const Names records{"data.train.preset", "data.train.format",     "data.train.columns",
                             "data.train.prompt", "data.train.completion", "data.train.split",
                             "data.train.limit"};
  static const Names examples = chat_template + records + Names{"data.train.remove_duplicates",
                                                                "data.train.where",
                                                                "data.max_seq_len",
                                                                "data.overlong",
                                                                "data.train_on",
                                                                "data.train_on_prompt"};
  static const std::map<std::string_view, Names> table{
      {"eval", compute + examples + Names{"data.packing", "batch.micro", "batch.micro_tokens"}},
      {"generate", compute + chat_template},
      {"generate --data", compute + chat_template + records},
      {"merge", {"device"}},
      {"preview", Names{"model.add_tokens", "model.add_special_tokens"} + examples},
  };
  return table;
}

// One that would change nothing is a mistake: its writer expects that it does.
void require_read(std::string_view verb, const std::vector<std::string>& overrides) {
  const Names& read = settings_read().at(verb);
  Names others;
  for (const std::string& text : overrides) {
    if (text.starts_with('~')) continue;
    const std::string name = trim(text.substr(0, text.find('=')));
    const bool is_read = std::any_of(read.begin(), read.end(), [&](const std::string& setting) {
      return name == setting || name.starts_with(setting + ".");
    });
    if (!is_read) others.push_back(name);
  }
  if (others.empty()) return;
  throw Error("[command line] expected settings that `lorikeet " + std::string(verb) + "` reads, got " +
              join(others, ", ") + ", which would change nothing; it reads " + join(read, ", "));
}

}  // namespace

config::Settings verb_settings(std::string_view verb, const std::string& model,
                               const std::vector<std::string>& overrides) {
  io::require_model_folder(model);
  std::vector<std::string> all{config::make_override("model.path", model)};
  all.insert(all.end(), overrides.begin(), overrides.end());
  config::Settings settings = config::parse_settings("", "command line", all);
  require_read(verb, overrides);
  return settings;
}

}  // namespace lorikeet::apps
