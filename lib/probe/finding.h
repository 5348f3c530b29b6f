#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace lorikeet::probe {

enum class Severity {
  kOk,
  kNote,     ///< worth knowing; nothing to mend
  kWarning,  ///< costs speed or may break a run
  kUnfit,    ///< a run would surely fail, or compute something else than it says
};

/// "ok", "note", "warning", "unfit".
const char* name_of(Severity severity);

/// What a check has to say, for people: one sentence, and the command that mends it ("" where none does).
/// Both are free of control characters whatever they quote.
struct Finding {
  Finding(std::string check, Severity severity, const std::string& sentence, const std::string& command = "");

  std::string check;
  Severity severity;
  std::string sentence;
  std::string command;
  /// What was measured, by name with its unit: {"gflops_per_second", 51.2}.
  std::vector<std::pair<std::string, double>> figures;
};

using Findings = std::vector<Finding>;

/// The gravest of all; kOk for none.
Severity worst(const Findings& findings);

/// 0 where nothing is worse than a note, 1 with warnings, 3 where something is unfit.
int exit_code(const Findings& findings);

/// The warnings, a line each, with what mends them.
std::vector<std::string> warnings_of(const Findings& findings);

/// What a program does with them at its start: logs the warnings, and throws Error (kEnvironment) where
/// something is unfit.
void heed(const Findings& findings);

/// A line for each, with a second one for its command.
std::string format_table(const Findings& findings);

/// {"exit_code", "findings": [{"check", "result", "sentence", "command", "figures"}]}.
Json findings_json(const Findings& findings);

}  // namespace lorikeet::probe
