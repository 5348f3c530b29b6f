#include "apps/config_files.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::apps {

std::filesystem::path executable_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

std::filesystem::path configs_folder() {
  const std::filesystem::path here = executable_folder();
  // Installed: <prefix>/libexec/lorikeet/<program> and <prefix>/share/lorikeet/recipes/configs.
  // Built: <source>/build/<preset>/apps/<program> and <source>/recipes/configs.
  const std::filesystem::path candidates[] = {here / "../../share/lorikeet/recipes/configs",
                                              here / "../../../recipes/configs"};
  for (const std::filesystem::path& candidate : candidates) {
    if (std::filesystem::is_directory(candidate)) return std::filesystem::canonical(candidate);
  }
  throw Error("[configs] no folder of ready-made configs beside '" + here.string() + "'");
}

std::vector<std::string> config_names() {
  const std::filesystem::path root = configs_folder();
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() != ".yaml") continue;
    names.push_back(std::filesystem::relative(entry.path(), root).replace_extension().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::filesystem::path find_config(const std::string& name) {
  if (std::filesystem::is_regular_file(name)) return name;
  const std::vector<std::string> names = config_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return configs_folder() / (name + ".yaml");
  throw Error("[config] no file and no ready-made config '" + escape_control(name) + "'" +
              did_you_mean(name, names) + "; `lorikeet ls` lists them");
}

}  // namespace lorikeet::apps
