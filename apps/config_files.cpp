#include "apps/config_files.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "base/home.h"
#include "base/strings.h"

namespace lorikeet::apps {
namespace {

// Where the ready-made configs may be, the first choice first.
// Installed: <prefix>/libexec/lorikeet/<program> and <prefix>/share/lorikeet/recipes/configs.
// Built: <source>/build/<preset>/apps/<program> and <source>/recipes/configs.
std::array<std::filesystem::path, 2> configs_folders() {
  const std::filesystem::path here = executable_folder();
  return {(here / "../../share/lorikeet/recipes/configs").lexically_normal(),
          (here / "../../../recipes/configs").lexically_normal()};
}

// `beside`: what else wasn't found, with a comma behind it.
[[noreturn]] void fail_without_configs(const std::string& beside) {
  const auto [installed, built] = configs_folders();
  throw Error(
      "[configs] found " + beside + "no ready-made configs, neither in '" + installed.string() +
          "' nor in '" + built.string() + "': '" + executable_folder().string() +
          "' is neither part of an installation nor of a build folder; start the program where it was "
          "built, move an installation (cmake --install) as a whole, or give the path of a config file",
      ErrorKind::kEnvironment);
}

}  // namespace

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

std::optional<std::filesystem::path> find_configs_folder() {
  std::error_code ignored;
  for (const std::filesystem::path& candidate : configs_folders()) {
    if (std::filesystem::is_directory(candidate, ignored)) return std::filesystem::canonical(candidate);
  }
  return std::nullopt;
}

std::filesystem::path configs_folder() {
  if (const auto folder = find_configs_folder()) return *folder;
  fail_without_configs("");
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
  if (std::filesystem::exists(name, ignored) && !std::filesystem::is_directory(name, ignored))
    return std::filesystem::path(name);
  if (!find_configs_folder()) fail_without_configs("no file '" + escape_control(name) + "' and ");
  const std::vector<std::string> names = config_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return configs_folder() / (name + ".yaml");
  throw Error("[config] no file and no ready-made config '" + escape_control(name) + "'" +
              did_you_mean(name, names) + "; `lorikeet ls` lists them");
}

}  // namespace lorikeet::apps
