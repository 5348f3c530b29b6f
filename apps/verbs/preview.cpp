#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>

#include "apps/hub_paths.h"
#include "apps/verbs/between.h"
#include "apps/verbs/home_path.h"
#include "apps/verbs/model_options.h"
#include "apps/verbs/verbs.h"
#include "base/file.h"
#include "base/json.h"
#include "data/load.h"
#include "data/preview.h"
#include "models/registry.h"
#include "recipes/settings_map.h"

namespace lorikeet::apps {
namespace {

// As the folder's config.json says, 0 for a tokenizer's folder without one.
std::int64_t embedding_rows(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  if (!std::filesystem::exists(path)) return 0;
  const Json json = models::read_config_json(folder);
  return JsonView(json, path.string()).get_int("vocab_size", 0);
}

// https://no-color.org: set and not empty means no colours.
bool wants_colour() {
  const char* none = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) == 1 && (none == nullptr || *none == '\0');
}

}  // namespace

Verb add_preview(CLI::App& app) {
  struct Options {
    std::string model, data;
    std::size_t rows = 3;
    std::vector<std::string> overrides;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "preview",
      "Shows rows of a data file as tokens, with which of them are trained on (+) and which not (-).");
  command->add_option("model", o->model, "a checkpoint's folder, or just a tokenizer's, or hub:REPO")
      ->required()
      ->transform(home_path());
  command->add_option("--data", o->data, "the data file")->required()->transform(home_path());
  command->add_option("--rows", o->rows, "how many rows")
      ->capture_default_str()
      ->check(between<std::int64_t>(1, INT64_MAX));
  command->add_option("overrides", o->overrides,
                      "settings, e.g. data.train.format=chat data.max_seq_len=512");
  return {command, [o] {
            o->model = local_model(o->model);
            o->data = local_data(o->data);
            const config::Settings settings = verb_settings("preview", o->model, o->overrides);
            data::DataOptions options = recipes::data_options(settings);
            options.use_cache = false;
            const auto tokenizer =
                text::load_tokenizer_with(o->model, recipes::new_tokens(settings.model)).tokenizer;
            options.embedding_rows =
                std::max(embedding_rows(o->model), static_cast<std::int64_t>(tokenizer->vocab_size()));
            const data::LoadedFile file = data::load_file(o->data, options, *tokenizer);
            std::cerr << file.report.describe() << "\n";
            const data::PreviewOptions look{.colour = wants_colour()};
            for (std::size_t i = 0; i < std::min(o->rows, file.dataset.size()); ++i) {
              std::cout << data::preview_example(file.dataset, i, *tokenizer, look) << "\n";
            }
            return 0;
          }};
}

}  // namespace lorikeet::apps
