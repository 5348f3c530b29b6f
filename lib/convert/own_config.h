#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lorikeet::convert {

/// A config of ours as it is written: settings in the order in which they are set, those of one section
/// together.
class OwnConfig {
 public:
  void set_text(const std::string& name, const std::string& text, const std::string& comment = "");
  void set_list(const std::string& name, const std::vector<std::string>& texts,
                const std::string& comment = "");
  /// Numbers, booleans, lists of numbers, null: `yaml` stands as it is.
  void set(const std::string& name, const std::string& yaml, const std::string& comment = "");
  void set_boolean(const std::string& name, bool value) { set(name, std::string(value ? "true" : "false")); }
  void set_integer(const std::string& name, std::int64_t value) { set(name, std::to_string(value)); }
  /// What differs in numbers though the settings are the same.
  void note(const std::string& text) { notes_.push_back(text); }

  const std::vector<std::string>& notes() const { return notes_; }
  /// The file: `head` and the notes as comments, the settings, then `comments` under "Without counterpart".
  std::string yaml(const std::string& head, const std::vector<std::string>& comments) const;

 private:
  struct Setting {
    std::string name, value, comment;
  };
  void write(std::string& out, const std::string& section, int depth, std::vector<bool>& done) const;

  std::vector<Setting> settings_;
  std::vector<std::string> notes_;
};

}  // namespace lorikeet::convert
