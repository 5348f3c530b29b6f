#include "apps/config_files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "base/home.h"
#include "base/strings.h"

namespace lorikeet::apps {

std::filesystem::path executable_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

std::filesystem::path recipe_program(const std::string& recipe) {
  const std::filesystem::path folder = executable_folder(), program = folder / recipe;
  if (::access(program.c_str(), X_OK) == 0) return program;
  const std::string reason = std::strerror(errno);
  const std::filesystem::path build = folder.parent_path();
  std::error_code ignored;
  throw Error("[run] can't start " + recipe + ": '" + escape_control(program.string()) + "': " + reason +
                  "; " +
                  (std::filesystem::exists(build / "CMakeCache.txt", ignored)
                       ? "build it: cmake --build " + build.string() + " --target " + recipe
                       : "it belongs beside `lorikeet`: install it there"),
              ErrorKind::kEnvironment);
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

std::filesystem::path find_config(const std::string& text) {
  const std::string name = expand_home(text);
  std::error_code ignored;
  // A pipe of the shell's, <(...), is a file too.
  if (std::filesystem::exists(name, ignored) && !std::filesystem::is_directory(name, ignored)) return name;
  const std::vector<std::string> names = config_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return configs_folder() / (name + ".yaml");
  throw Error("[config] no file and no ready-made config '" + escape_control(name) + "'" +
              did_you_mean(name, names) + "; `lorikeet ls` lists them");
}

}  // namespace lorikeet::apps
