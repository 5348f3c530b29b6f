#include "convert/own_config.h"

#include "base/strings.h"
#include "config/yaml.h"

namespace lorikeet::convert {

void OwnConfig::set_text(const std::string& name, const std::string& text, const std::string& comment) {
  set(name, config::quote_yaml(text), comment);
}

void OwnConfig::set_list(const std::string& name, const std::vector<std::string>& texts,
                         const std::string& comment) {
  std::vector<std::string> quoted;
  quoted.reserve(texts.size());
  for (const std::string& text : texts) quoted.push_back(config::quote_yaml(text));
  set(name, "[" + join(quoted, ", ") + "]", comment);
}

void OwnConfig::set(const std::string& name, const std::string& yaml, const std::string& comment) {
  settings_.push_back({name, yaml, comment});
}

void OwnConfig::write(std::string& out, const std::string& section, int depth,
                      std::vector<bool>& done) const {
  const std::string indent(static_cast<std::size_t>(2 * depth), ' ');
  for (std::size_t i = 0; i < settings_.size(); ++i) {
    const Setting& setting = settings_[i];
    if (done[i] || !setting.name.starts_with(section)) continue;
    const std::string rest = setting.name.substr(section.size());
    const std::size_t dot = rest.find('.');
    if (dot == std::string::npos) {
      done[i] = true;
      out += indent + rest + ": " + setting.value +
             (setting.comment.empty() ? "" : "  # " + setting.comment) + "\n";
    } else {
      out += indent + rest.substr(0, dot) + ":\n";
      write(out, section + rest.substr(0, dot + 1), depth + 1, done);
    }
  }
}

std::string OwnConfig::yaml(const std::string& head, const std::vector<std::string>& comments) const {
  std::string out = "# " + head + "\n";
  for (const std::string& note : notes_) out += "# Differs: " + escape_control(note) + "\n";
  std::vector<bool> done(settings_.size(), false);
  write(out, "", 0, done);
  if (!comments.empty()) out += "# Without counterpart here:\n";
  for (const std::string& comment : comments) {
    for (const std::string& line : split(comment, '\n')) out += "#   " + escape_control(line) + "\n";
  }
  return out;
}

}  // namespace lorikeet::convert
