#include "io/checkpoint_names.h"

#include <algorithm>

namespace lorikeet::io {

std::vector<std::string> CheckpointNames::in_files(const std::string& name) const {
  std::vector<std::string> all{name};
  for (const Prefix& prefix : prefixes) {
    if (name.starts_with(prefix.model)) all.push_back(prefix.file + name.substr(prefix.model.size()));
  }
  return all;
}

std::vector<std::string> CheckpointNames::modules_in_files(const std::string& module) const {
  // Prefixes end behind a part of a name: a module may be all of one.
  std::vector<std::string> all = in_files(module + ".");
  for (std::string& name : all) name.pop_back();
  return all;
}

std::string CheckpointNames::spelled_like(const std::string& name, const std::string& other,
                                          const std::string& other_in_file) const {
  const bool as_in_model = other_in_file == other && in_files(other).size() > 1;
  return as_in_model ? name : in_files(name).back();
}

std::string CheckpointNames::model_name(const std::string& in_file) const {
  const auto begins = [&](const std::string& part) { return in_file.starts_with(part); };
  // A file's beginning may also be that of the model's names, or of another part's ("model.").
  if (std::any_of(other_parts.begin(), other_parts.end(), begins)) return in_file;
  for (const Prefix& prefix : prefixes) {
    // Of two that begin alike ("model.", "model.language_model.") the longer one is meant where it is there.
    const bool file_first = prefix.file.starts_with(prefix.model);
    if (!file_first && begins(prefix.model)) return in_file;
    if (begins(prefix.file)) return prefix.model + in_file.substr(prefix.file.size());
  }
  return in_file;
}

}  // namespace lorikeet::io
