#include "apps/hub_paths.h"

#include <unistd.h>

#include "base/error.h"

namespace lorikeet::apps {
namespace {

std::string local_path(const std::string& path, hub::RepositoryKind kind, hub::Absent absent) {
  const auto named = hub::parse_hub_path(path, kind);
  if (!named) return path;
  return hub::resolve(*named, hub::read_environment(), absent,
                      {.include = {}, .on_terminal = isatty(STDERR_FILENO) == 1, .retry = {}})
      .string();
}

void use_cached(std::string& path, hub::RepositoryKind kind) {
  try {
    path = local_path(path, kind, hub::Absent::kError);
  } catch (const Error&) {  // not there: what needs it says so
  }
}

}  // namespace

std::string local_model(const std::string& path, hub::Absent absent) {
  return local_path(path, hub::RepositoryKind::kModel, absent);
}

std::string local_data(const std::string& path, hub::Absent absent) {
  return local_path(path, hub::RepositoryKind::kDataset, absent);
}

void use_local_paths(config::Settings& settings, hub::Absent absent) {
  settings.model.path = local_model(settings.model.path, absent);
  settings.data.train.path = local_data(settings.data.train.path, absent);
  for (config::SourceSettings& source : settings.data.train.sources)
    source.path = local_data(source.path, absent);
  if (auto& validation = settings.data.validation.path) validation = local_data(*validation, absent);
}

void use_cached_paths(config::Settings& settings) {
  use_cached(settings.model.path, hub::RepositoryKind::kModel);
  use_cached(settings.data.train.path, hub::RepositoryKind::kDataset);
  for (config::SourceSettings& source : settings.data.train.sources)
    use_cached(source.path, hub::RepositoryKind::kDataset);
  if (auto& validation = settings.data.validation.path)
    use_cached(*validation, hub::RepositoryKind::kDataset);
}

}  // namespace lorikeet::apps
