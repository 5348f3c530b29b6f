#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/settings.h"

// Reading, printing and comparing a run's settings.
namespace lorikeet::config {

/// The settings of a YAML file with overrides applied in order:
///   a.b=value  sets a field (the value is read as YAML; the first '=' ends the name)
///   ~a.b       drops what the file or an earlier override says: back to the default
/// An empty checkpoint.output_dir becomes runs/<the file's stem>. Relative paths stay as written: they count
/// from the working folder. Throws one Error that lists all problems, one a line, with their places.
Settings load_settings(const std::filesystem::path& path, const std::vector<std::string>& overrides = {});

/// The same from text in memory; `name` is the file's name in places ("run.yaml:3"). A verb that has no
/// config file passes an empty text and overrides alone.
Settings parse_settings(std::string_view text, const std::string& name,
                        const std::vector<std::string>& overrides = {});

/// What can be read of a file and overrides that may be wrong.
struct PartialSettings {
  Settings settings;                  ///< with defaults in the place of what can't be read
  std::vector<std::string> problems;  ///< what load_settings would throw, one by one
  std::set<std::string> unread;       ///< the settings that have defaults for that reason
};

/// load_settings without its error. Throws Error for a file that can't be opened or isn't YAML.
PartialSettings read_settings(const std::filesystem::path& path, const std::vector<std::string>& overrides);

/// Whether a problem that was found with PartialSettings may come from a default in the place of the user's
/// value: its text names one of the settings `unread`.
bool follows_from(const std::string& problem, const std::set<std::string>& unread);

/// "name=value" for an override whose value is any text at all, e.g. a path with odd characters.
std::string make_override(std::string_view name, std::string_view text_value);

/// All settings as YAML, in the schema's order, defaults too: loading it gives equal settings.
std::string to_yaml(const Settings& settings);

enum class FingerprintScope {
  kAll,      ///< every field
  kNumbers,  ///< only those that change what a run computes: leaves out checkpoint, metrics, device, caches
};

/// sha256 in hexadecimal over names and values of the fields in scope.
std::string fingerprint(const Settings& settings, FingerprintScope scope);

/// Names and values (as YAML) of the fields in scope, in the schema's order.
std::vector<std::pair<std::string, std::string>> field_values(const Settings& settings,
                                                              FingerprintScope scope);

struct Difference {
  std::string name;
  std::string old_value;  ///< as YAML
  std::string new_value;
};

/// The fields in scope that differ, in the schema's order.
std::vector<Difference> differences(const Settings& older, const Settings& newer, FingerprintScope scope);

/// The reference of all settings as Markdown: a table a section.
std::string reference_markdown();

/// The same for a terminal.
std::string help_text();

}  // namespace lorikeet::config
