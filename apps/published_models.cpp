#include "apps/published_models.h"

#include <algorithm>
#include <system_error>
#include <tuple>

#include "apps/config_files.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/strings.h"
#include "io/checkpoint.h"

namespace lorikeet::apps {
namespace {

constexpr std::string_view kSuffix = ".config.json";
constexpr std::size_t kMostBytes = 1U << 20;

// "models/Qwen3-8B/" -> "Qwen3-8B"
std::string last_part(const std::string& path) {
  const std::filesystem::path whole(path);
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

}  // namespace

std::string PublishedModel::folder() const { return last_part(repository); }

std::vector<PublishedModel> published_models() {
  std::vector<PublishedModel> models;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(configs_folder())) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(kSuffix)) continue;
    const std::string where = entry.path().string();
    const Json config = Json::parse(read_file(entry.path(), kMostBytes), where);
    models.push_back({.family = entry.path().parent_path().filename().string(),
                      .size = name.substr(0, name.size() - kSuffix.size()),
                      .repository = JsonView(config, where).at("_name_or_path").as_string(),
                      .config = entry.path()});
  }
  std::sort(models.begin(), models.end(), [](const PublishedModel& a, const PublishedModel& b) {
    return std::tie(a.family, a.size) < std::tie(b.family, b.size);
  });
  return models;
}

std::optional<std::filesystem::path> published_config(const std::string& model_path) {
  std::error_code ignored;
  if (std::filesystem::exists(model_path, ignored)) return std::nullopt;
  const std::string wanted = last_part(model_path);
  std::vector<std::string> names;
  const bool known = find_configs_folder().has_value();
  for (const PublishedModel& model : known ? published_models() : std::vector<PublishedModel>()) {
    if (model.folder() == wanted) return model.config;
    names.push_back(model.folder());
  }
  try {
    io::require_model_folder(model_path);
  } catch (const Error& error) {
    if (!known)
      throw Error(std::string(error.what()) +
                  "; of published models nothing is known here: this program was copied without the "
                  "ready-made configs");
    throw Error(error.what() + ("; no published model of that name is known" + did_you_mean(wanted, names)) +
                ", `lorikeet ls` lists those that can be planned without their folder");
  }
  return std::nullopt;
}

}  // namespace lorikeet::apps
