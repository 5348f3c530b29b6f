#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace lorikeet::probe {

enum class Severity {
  kOk,
  kNote,     ///< worth knowing; nothing to fix
  kWarning,  ///< costs speed or may break a run
  kUnfit,    ///< a run would fail, or would not compute what it claims to
};

/// "ok", "note", "warning", "unfit".
const char* name_of(Severity severity);

/// The result of a check, for the user: one sentence, and the command that fixes it ("" when there is none).
/// Control characters of quoted text are escaped in both.
struct Finding {
  Finding(std::string check, Severity severity, const std::string& sentence, const std::string& command = "");

  std::string check;
  Severity severity;
  std::string sentence;
  std::string command;
  /// Measured values by name and unit: {"gflops_per_second", 51.2}.
  std::vector<std::pair<std::string, double>> figures;
};

using Findings = std::vector<Finding>;

/// The highest severity; kOk without findings.
Severity worst(const Findings& findings);

/// 3 when something is unfit, else 1 with warnings, else 0.
int exit_code(const Findings& findings);

/// The warnings, a line each, with the commands that fix them.
std::vector<std::string> warnings_of(const Findings& findings);

/// Logs the warnings, and throws Error (kEnvironment) when something is unfit: for a program's start.
void enforce(const Findings& findings);

/// A table with a line for each finding and a second one for its command.
std::string format_table(const Findings& findings);

/// {"exit_code", "findings": [{"check", "result", "sentence", "command", "figures"}]}.
Json findings_json(const Findings& findings);

}  // namespace lorikeet::probe
