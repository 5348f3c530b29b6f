#include <algorithm>

#include "base/hash.h"
#include "base/strings.h"
#include "config/config.h"
#include "config/schema.h"

namespace lorikeet::config {
namespace {

bool in_scope(const Field& field, FingerprintScope scope) {
  return scope == FingerprintScope::kAll || field.changes_numbers;
}

std::string section_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

std::string default_of(const Field& field) {
  if (field.required) return "required";
  if (!field.default_note.empty()) return field.default_note;
  static const Settings kDefaults;
  return field.write(kDefaults);
}

// The fields directly in `section`, in the schema's order.
std::vector<const Field*> fields_in(const std::string& section) {
  std::vector<const Field*> out;
  for (const Field& field : schema().fields()) {
    if (section_of(field.name) == section) out.push_back(&field);
  }
  return out;
}

// Sections in the order of their first field; "" (the fields of the root) among them.
std::vector<SectionHelp> ordered_sections() {
  std::vector<SectionHelp> out;
  for (const Field& field : schema().fields()) {
    const std::string name = section_of(field.name);
    if (std::any_of(out.begin(), out.end(), [&](const SectionHelp& s) { return s.name == name; })) continue;
    std::string help;
    for (const SectionHelp& section : schema().sections()) {
      if (section.name == name) help = section.help;
    }
    out.push_back({name, help});
  }
  return out;
}

std::string markdown_cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

// A line for each two that exclude each other.
std::string exclusions() {
  std::string out;
  for (const Exclusion& pair : schema().exclusions())
    out += "- `" + pair.fields[0].name + "` and `" + pair.fields[1].name + "`\n";
  return out;
}

// Appends "  key:\n" for each part of `section` that is not yet open.
void open_sections(std::string& out, std::vector<std::string>& open, const std::string& section) {
  const std::vector<std::string> parts = section.empty() ? std::vector<std::string>{} : split(section, '.');
  std::size_t shared = 0;
  while (shared < open.size() && shared < parts.size() && open[shared] == parts[shared]) ++shared;
  for (std::size_t i = shared; i < parts.size(); ++i) out += std::string(2 * i, ' ') + parts[i] + ":\n";
  open = parts;
}

}  // namespace

std::string to_yaml(const Settings& settings) {
  std::string out;
  std::vector<std::string> open;
  for (const Field& field : schema().fields()) {
    open_sections(out, open, section_of(field.name));
    out +=
        std::string(2 * open.size(), ' ') + std::string(field.leaf()) + ": " + field.write(settings) + "\n";
  }
  return out;
}

std::string fingerprint(const Settings& settings, FingerprintScope scope) {
  Sha256 hash;
  hash.field("lorikeet settings 1");
  for (const Field& field : schema().fields()) {
    if (in_scope(field, scope)) hash.field(field.name).field(field.write(settings));
  }
  return hash.hex();
}

std::vector<std::pair<std::string, std::string>> field_values(const Settings& settings,
                                                              FingerprintScope scope) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const Field& field : schema().fields()) {
    if (in_scope(field, scope)) out.emplace_back(field.name, field.write(settings));
  }
  return out;
}

std::vector<Difference> differences(const Settings& older, const Settings& newer, FingerprintScope scope) {
  std::vector<Difference> out;
  for (const Field& field : schema().fields()) {
    if (!in_scope(field, scope)) continue;
    std::string before = field.write(older);
    std::string after = field.write(newer);
    if (before != after) out.push_back({field.name, std::move(before), std::move(after)});
  }
  return out;
}

std::string reference_markdown() {
  std::string out =
      "# Settings\n\n"
      "A config file is YAML with the sections below. Every setting has a default but `model.path`. On the "
      "command\n"
      "line `name=value` sets one and `~name` drops it back to its default; names are written in full, as "
      "in\n"
      "`lora.rank=8`. A list needs no brackets there: `lora.target_modules=q_proj,v_proj`. Relative paths "
      "count\n"
      "from the folder that the command runs in; a leading `~/` is the home folder. Of two settings that "
      "exclude each\n"
      "other, one that is given takes the place of the other's default, and one on the command line that of "
      "the\n"
      "file's:\n\n" +
      exclusions();
  for (const SectionHelp& section : ordered_sections()) {
    out += section.name.empty() ? "\n## Top level\n" : "\n## " + section.name + "\n\n" + section.help + "\n";
    out += "\n| setting | default | value | meaning |\n|---|---|---|---|\n";
    for (const Field* field : fields_in(section.name)) {
      out += "| `" + field->name + "` | " + markdown_cell(default_of(*field)) + " | " +
             markdown_cell(field->expected) + " | " + markdown_cell(field->help) + " |\n";
    }
  }
  return out;
}

std::string help_text() {
  std::string out;
  for (const SectionHelp& section : ordered_sections()) {
    if (!section.name.empty()) out += section.name + ": " + section.help + "\n";
    for (const Field* field : fields_in(section.name)) {
      const std::string margin = section.name.empty() ? "" : "  ";
      out += margin + field->name + "  [" + default_of(*field) + "]\n";
      out += margin + "    " + field->help + "\n" + margin + "    Value: " + field->expected + ".\n";
    }
    out += '\n';
  }
  return out;
}

}  // namespace lorikeet::config
