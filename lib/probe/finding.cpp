#include "probe/finding.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"

namespace lorikeet::probe {
namespace {

// On one line, however odd what it quotes is.
std::string one_line(const std::string& text) {
  std::string line = escape_control(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::replace(line.begin(), line.end(), '\t', ' ');
  return line;
}

std::vector<std::string> lines_of(const Findings& findings, Severity severity) {
  std::vector<std::string> lines;
  for (const Finding& finding : findings) {
    if (finding.severity != severity) continue;
    lines.push_back(finding.check + ": " + finding.sentence +
                    (finding.command.empty() ? "" : "; to fix it: " + finding.command));
  }
  return lines;
}

}  // namespace

const char* name_of(Severity severity) {
  switch (severity) {
    case Severity::kOk: return "ok";
    case Severity::kNote: return "note";
    case Severity::kWarning: return "warning";
    case Severity::kUnfit: return "unfit";
  }
  return "";
}

Finding::Finding(std::string check, Severity severity, const std::string& sentence,
                 const std::string& command)
    : check(std::move(check)), severity(severity), sentence(one_line(sentence)), command(one_line(command)) {}

Severity worst(const Findings& findings) {
  Severity gravest = Severity::kOk;
  for (const Finding& finding : findings) gravest = std::max(gravest, finding.severity);
  return gravest;
}

int exit_code(const Findings& findings) {
  switch (worst(findings)) {
    case Severity::kWarning: return static_cast<int>(ErrorKind::kRunFailed);
    case Severity::kUnfit: return static_cast<int>(ErrorKind::kEnvironment);
    default: return 0;
  }
}

std::vector<std::string> warnings_of(const Findings& findings) {
  return lines_of(findings, Severity::kWarning);
}

void enforce(const Findings& findings) {
  for (const std::string& warning : warnings_of(findings)) log_warning(warning);
  const std::vector<std::string> unfit = lines_of(findings, Severity::kUnfit);
  if (unfit.empty()) return;
  throw Error("[preflight] expected a machine that is fit for this run, got: " + join(unfit, "; ") +
                  "; `lorikeet doctor` shows all",
              ErrorKind::kEnvironment);
}

std::string format_table(const Findings& findings) {
  std::size_t widest = 0;
  for (const Finding& finding : findings) widest = std::max(widest, finding.check.size());
  constexpr std::size_t kResultWidth = 9;  // "warning" and two blanks
  std::string table;
  for (const Finding& finding : findings) {
    std::string check = finding.check, result = name_of(finding.severity);
    check.resize(widest + 2, ' ');
    result.resize(kResultWidth, ' ');
    table += check + result + finding.sentence + "\n";
    if (!finding.command.empty())
      table += std::string(widest + 2 + kResultWidth, ' ') + "fix: " + finding.command + "\n";
  }
  return table;
}

Json findings_json(const Findings& findings) {
  Json::Array list;
  for (const Finding& finding : findings) {
    Json one;
    one.set("check", finding.check).set("result", name_of(finding.severity));
    one.set("sentence", finding.sentence);
    one.set("command", finding.command.empty() ? Json() : Json(finding.command));
    one.set("figures", Json::Object(finding.figures.begin(), finding.figures.end()));
    list.push_back(std::move(one));
  }
  Json json;
  json.set("exit_code", exit_code(findings)).set("findings", std::move(list));
  return json;
}

}  // namespace lorikeet::probe
