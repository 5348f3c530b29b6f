// Variables that overrule NCCL's own choices.
#include <algorithm>
#include <cctype>

#include "base/strings.h"
#include "probe/checks.h"
#include "probe/peer_paths.h"

namespace lorikeet::probe {
namespace {

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

// The names of a list such as "Ring,Tree"; of one with "^" in front, which excludes them, none.
std::vector<std::string> allowed_names(const std::string& value) {
  if (value.starts_with('^')) return {};
  std::vector<std::string> names;
  for (const std::string& part : split(upper(value), ',')) names.push_back(trim(part));
  return names;
}

// Whether NCCL_ALGO lets `function` use `algorithm`: "Ring,Tree" for all functions, "^Tree" for all but some,
// and "broadcast:ring;allreduce:tree" for each its own. Source: NCCL's documentation of its environment
// variables.
bool allows(const std::string& value, const char* function, const char* algorithm) {
  bool allowed = true;
  for (const std::string& entry : split(upper(value), ';')) {
    const std::size_t colon = entry.find(':');
    if (colon != std::string::npos && trim(entry.substr(0, colon)) != function) continue;
    std::string list = trim(colon == std::string::npos ? entry : entry.substr(colon + 1));
    const bool exclude = list.starts_with('^');
    if (exclude) list.erase(0, 1);
    bool named = false;
    for (const std::string& name : split(list, ',')) named = named || trim(name) == algorithm;
    allowed = named != exclude;
  }
  return allowed;
}

bool contains(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool one_machine(const Sources& sources) { return sources.needs.nodes.value_or(1) == 1; }

}  // namespace

Findings check_nccl_algo(const Sources& sources) {
  constexpr const char* kName = "NCCL_ALGO";
  const Variable* variable = find_variable(sources, kName);
  if (variable == nullptr || variable->value.empty()) return {};
  // In NCCL, broadcasts run by Ring alone; every step gathers, which Tree can't do either.
  for (const char* function : {"BROADCAST", "ALLGATHER"}) {
    if (allows(variable->value, function, "RING")) continue;
    return {{kName, Severity::kUnfit,
             shown(kName, *variable) + " forbids Ring, without which NCCL can't " +
                 (function[0] == 'B' ? "broadcast" : "gather") + ": the run fails at its first step",
             drop_command(kName, *variable)}};
  }
  return {{kName, Severity::kNote,
           shown(kName, *variable) +
               " overrules NCCL's choice, which goes by message size and topology; drop it "
               "unless it was measured on this machine",
           drop_command(kName, *variable)}};
}

Findings check_nccl_proto(const Sources& sources) {
  constexpr const char* kName = "NCCL_PROTO";
  const Variable* variable = find_variable(sources, kName);
  if (variable == nullptr || variable->value.empty()) return {};
  const std::vector<std::string> names = allowed_names(variable->value);
  const PeerPaths paths = peer_paths(sources.gpus);
  if (contains(names, "LL128") && (paths.nvlink < paths.pairs || !one_machine(sources))) {
    return {{kName, Severity::kWarning,
             shown(kName, *variable) +
                 " forces LL128, which needs stores of 128 bytes to arrive whole: between "
                 "GPUs that NVLink doesn't join, sums may silently be wrong",
             drop_command(kName, *variable)}};
  }
  if (!names.empty() && !contains(names, "SIMPLE")) {
    return {{kName, Severity::kWarning,
             shown(kName, *variable) +
                 " leaves out Simple, the protocol for large messages such as an adapter's "
                 "gradients: LL carries at most half of the link's rate",
             drop_command(kName, *variable)}};
  }
  return {{kName, Severity::kNote,
           shown(kName, *variable) +
               " overrules NCCL's choice by message size; drop it unless it was measured on "
               "this machine",
           drop_command(kName, *variable)}};
}

Findings check_nccl_debug(const Sources& sources) {
  constexpr const char* kName = "NCCL_DEBUG";
  const Variable* variable = find_variable(sources, kName);
  if (variable == nullptr) return {};
  const std::string level = upper(variable->value);
  if (level == "TRACE") {
    return {{kName, Severity::kWarning,
             shown(kName, *variable) + " writes a line for every call of every rank: slow, and large on disk",
             "export NCCL_DEBUG=WARN"}};
  }
  if (level == "INFO") {
    return {{kName, Severity::kNote,
             shown(kName, *variable) +
                 " writes some hundred lines a rank at start, which show the paths taken, "
                 "and costs no speed afterwards",
             "export NCCL_DEBUG=WARN"}};
  }
  return {};
}

}  // namespace lorikeet::probe
