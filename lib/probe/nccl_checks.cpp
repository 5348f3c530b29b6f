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

bool contains(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool behind_switch(const GpuFacts& gpus) {
  return std::all_of(gpus.used.begin(), gpus.used.end(), [&](std::size_t gpu) {
    const auto& links = gpus.inventory.gpus.at(gpu).nvlinks;
    return std::any_of(links.begin(), links.end(),
                       [](const device::NvLink& link) { return link.peer == device::NvLink::Peer::kSwitch; });
  });
}

bool one_machine(const Sources& sources) { return sources.needs.nodes.value_or(1) == 1; }

}  // namespace

Findings check_nccl_algo(const Sources& sources) {
  constexpr const char* kName = "NCCL_ALGO";
  const Variable* variable = find_variable(sources, kName);
  if (variable == nullptr || variable->value.empty()) return {};
  const std::vector<std::string> names = allowed_names(variable->value);
  const bool ring_or_tree = contains(names, "RING") || contains(names, "TREE");
  const bool switch_only = contains(names, "NVLS") || contains(names, "NVLSTREE");
  if (switch_only && !ring_or_tree && !behind_switch(sources.gpus)) {
    return {{kName, Severity::kWarning,
             shown(kName, *variable) + " allows only what needs an NVSwitch, which these GPUs aren't behind: "
                                       "NCCL finds no way to add up and fails",
             drop_command(kName, *variable)}};
  }
  const bool network_only =
      contains(names, "COLLNET") || contains(names, "COLLNETDIRECT") || contains(names, "COLLNETCHAIN");
  if (network_only && !ring_or_tree && one_machine(sources)) {
    return {{kName, Severity::kWarning,
             shown(kName, *variable) +
                 " allows only sums inside of network switches, and the run is on one machine",
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
