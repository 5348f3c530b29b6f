#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/rules.h"
#include "config/settings.h"
#include "config/yaml.h"

// Every setting, declared once in schema.cpp. Parsing, validation, the printed config, the reference and the
// fingerprints all walk this list.
namespace lorikeet::config {

/// One setting. A plain record: the functions are bound to the member and its rule by SectionBuilder.
struct Field {
  std::string name;          ///< "data.train.path"
  std::string help;          ///< one line
  std::string expected;      ///< "an integer, at least 1"
  std::string default_note;  ///< replaces the default's value in the reference, where that depends on the run
  bool required = false;
  bool is_map = false;   ///< `name.key=value` sets one entry
  bool is_text = false;  ///< one text, or null: on a command line it needs no quotes
  /// Part of what a run computes: a resumed run must agree on it.
  bool changes_numbers = true;

  /// Throws ValueError.
  std::function<void(Settings&, const YamlNode&)> read;
  /// The value as YAML on one line.
  std::function<std::string(const Settings&)> write;

  /// The last part of the name.
  std::string_view leaf() const { return std::string_view(name).substr(name.rfind('.') + 1); }
};

struct SectionHelp {
  std::string name;  ///< "data.train"
  std::string help;
};

/// Two settings of which at most one is in force. One that is given takes the place of the other's default,
/// and on the command line that of the file's other.
struct Exclusion {
  struct Member {
    std::string name;  ///< "lr_scheduler.warmup_steps"
    std::string off;   ///< the value, as it is written, that puts it out of force
  };
  std::array<Member, 2> fields;
  bool needed = false;  ///< one of them has to be in force
};

class Schema {
 public:
  const std::vector<Field>& fields() const { return fields_; }
  const std::vector<SectionHelp>& sections() const { return sections_; }
  const std::vector<Exclusion>& exclusions() const { return exclusions_; }
  /// The pair that the field `name` is one of, or nullptr.
  const Exclusion* exclusion_of(std::string_view name) const;

  const Field* find(std::string_view name) const;
  bool is_section(std::string_view name) const;
  /// Names of the fields and sections directly in `section` ("" is the root), without the section's own.
  std::vector<std::string> members(std::string_view section) const;
  /// The field whose last part is `leaf`, one below `section` before others, or nullptr.
  const Field* find_leaf(std::string_view leaf, std::string_view section = "") const;
  /// " (did you mean 'x'?)" for a key that `section` does not have: the full name of a field elsewhere whose
  /// last part is the key, the name here of what other trainers call so, or one of the section's own members.
  std::string suggestion(std::string_view section, std::string_view key) const;

 private:
  template <typename>
  friend class SectionBuilder;
  std::vector<Field> fields_;
  std::vector<SectionHelp> sections_;
  std::vector<Exclusion> exclusions_;
};

/// Declares the fields of one struct. `reach` leads from the settings to it.
template <typename Struct>
class SectionBuilder {
 public:
  using Reach = Struct& (*)(Settings&);

  /// `changes_numbers`: see Field; of all fields, as far as none says otherwise.
  SectionBuilder(Schema& schema, std::string name, Reach reach, std::string help, bool changes_numbers = true)
      : schema_(schema),
        prefix_(name.empty() ? "" : name + "."),
        reach_(reach),
        changes_numbers_(changes_numbers) {
    if (!name.empty()) schema_.sections_.push_back({std::move(name), std::move(help)});
  }

  template <typename Rule>
  SectionBuilder& field(const std::string& name, typename Rule::Value Struct::*member, const Rule& rule,
                        std::string help) {
    const Reach reach = reach_;
    Field field;
    field.name = prefix_ + name;
    field.help = std::move(help);
    field.expected = rule.expected();
    field.is_map = requires { Rule::kIsMap; };
    field.is_text = is_text_rule<Rule>;
    field.changes_numbers = changes_numbers_;
    field.read = [reach, member, rule](Settings& s, const YamlNode& node) {
      reach(s).*member = rule.read(node);
    };
    field.write = [reach, member, rule](const Settings& s) {
      return rule.write(reach(const_cast<Settings&>(s)).*member);  // only read
    };
    schema_.fields_.push_back(std::move(field));
    return *this;
  }

  /// Two of the section's fields exclude each other; members have their names within the section.
  SectionBuilder& exclusive(Exclusion::Member one, Exclusion::Member other, bool needed) {
    one.name.insert(0, prefix_);
    other.name.insert(0, prefix_);
    schema_.exclusions_.push_back({{std::move(one), std::move(other)}, needed});
    return *this;
  }

  // Each speaks of the field declared last.
  SectionBuilder& required() {
    last().required = true;
    return *this;
  }
  SectionBuilder& default_note(const std::string& note) {
    last().default_note = note;
    return *this;
  }
  /// A run with another value here computes the same numbers.
  SectionBuilder& same_numbers() {
    last().changes_numbers = false;
    return *this;
  }

 private:
  Field& last() { return schema_.fields_.back(); }

  Schema& schema_;
  std::string prefix_;
  Reach reach_;
  bool changes_numbers_;
};

/// The one schema, made at first use.
const Schema& schema();

}  // namespace lorikeet::config
