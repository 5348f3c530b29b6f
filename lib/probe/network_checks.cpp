// The network between machines, and the variables by which NCCL and libfabric choose in it.
#include <algorithm>

#include "base/strings.h"
#include "probe/checks.h"

namespace lorikeet::probe {
namespace {

bool may_leave_machine(const Sources& sources) { return sources.needs.nodes.value_or(2) > 1; }
bool leaves_machine(const Sources& sources) { return sources.needs.nodes.value_or(1) > 1; }

// A list by which NCCL chooses interfaces or adapters: "eth,ib" are beginnings of names, "=eth0" whole ones,
// and "^" in front excludes them. Source: NCCL's documentation of its environment variables.
struct NameList {
  bool exclude = false, whole = false;
  std::vector<std::string> names;
};

NameList parse_names(std::string text) {
  NameList list;
  if (text.starts_with('^')) list.exclude = true, text.erase(0, 1);
  if (text.starts_with('=')) list.whole = true, text.erase(0, 1);
  for (const std::string& part : split(text, ',')) {
    if (!trim(part).empty()) list.names.push_back(trim(part));
  }
  return list;
}

bool names_one(const NameList& list, const std::string& entry, const std::string& name) {
  return list.whole ? name == entry : name.starts_with(entry);
}

bool chosen(const NameList& list, const std::string& name) {
  const bool listed = std::any_of(list.names.begin(), list.names.end(),
                                  [&](const std::string& entry) { return names_one(list, entry, name); });
  return listed != list.exclude;
}

// "mlx5_0:1" without its port, and the port or "".
std::pair<std::string, std::string> split_port(const std::string& entry) {
  const std::size_t colon = entry.find(':');
  return {entry.substr(0, colon), colon == std::string::npos ? "" : entry.substr(colon + 1)};
}

bool names_port(const NameList& list, const std::string& entry, const FabricPort& port) {
  const auto [adapter, number] = split_port(entry);
  return names_one(list, adapter, port.adapter) && (number.empty() || number == port.port);
}

std::string list_of(const std::vector<std::string>& names) {
  return names.empty() ? "none" : join(names, ", ");
}

std::vector<std::string> port_names(const NetworkFacts& network) {
  std::vector<std::string> names;
  names.reserve(network.fabric.size());
  for (const FabricPort& port : network.fabric) names.push_back(port.adapter + ":" + port.port);
  return names;
}

}  // namespace

Findings check_socket_interface(const Sources& sources) {
  constexpr const char* kName = "NCCL_SOCKET_IFNAME";
  const Variable* variable = find_variable(sources, kName);
  if (variable == nullptr || variable->value.empty() || !sources.network.interfaces) return {};
  const NameList list = parse_names(variable->value);
  std::vector<std::string> taken, here;
  bool beyond_machine = false;
  for (const NetworkInterface& one : *sources.network.interfaces) {
    here.push_back(one.name + (one.up ? "" : " (down)"));
    if (!one.up || !chosen(list, one.name)) continue;
    taken.push_back(one.name);
    const bool local = one.name == "lo" || one.name.starts_with("docker") || one.name.starts_with("virbr");
    beyond_machine = beyond_machine || !local;
  }
  const std::string mend = drop_command(kName, *variable) + ", or name one of: " + join(here, ", ");
  if (taken.empty()) {
    return {
        {kName, Severity::kUnfit,
         shown(kName, *variable) + " chooses none of this machine's interfaces, and NCCL can't start without",
         mend}};
  }
  if (leaves_machine(sources) && !beyond_machine) {
    return {
        {kName, Severity::kUnfit,
         shown(kName, *variable) + " chooses only " + join(taken, ", ") + ", which no other machine reaches",
         mend}};
  }
  for (const std::string& entry : list.names) {
    const bool there =
        std::any_of(sources.network.interfaces->begin(), sources.network.interfaces->end(),
                    [&](const NetworkInterface& one) { return names_one(list, entry, one.name); });
    if (!there && !list.exclude) {
      return {{kName, Severity::kWarning,
               shown(kName, *variable) + " names '" + entry + "', which this machine doesn't have", mend}};
    }
  }
  return {{kName, Severity::kOk, shown(kName, *variable) + " chooses " + join(taken, ", ")}};
}

Findings check_infiniband(const Sources& sources) {
  constexpr const char* kName = "InfiniBand";
  const NetworkFacts& network = sources.network;
  if (network.fabric.empty())
    return {{kName, Severity::kOk, "this machine has no adapter: NCCL takes sockets between machines"}};
  std::vector<std::string> down;
  for (const FabricPort& port : network.fabric) {
    if (!port.active) down.push_back(port.adapter + ":" + port.port);
  }
  if (down.size() == network.fabric.size()) {
    return {{kName, leaves_machine(sources) ? Severity::kWarning : Severity::kNote,
             "no port is active (" + join(down, ", ") + "): NCCL takes sockets between machines", "ibstat"}};
  }
  if (!may_leave_machine(sources)) return {};
  Findings found;
  if (network.has_efa() && !network.net_plugin) {
    found.emplace_back(
        kName, Severity::kWarning,
        "EFA is active, but NCCL's plugin for it (libnccl-net.so) isn't found, so that NCCL takes "
        "TCP sockets, many times slower",
        "install aws-ofi-nccl, and have its folder in LD_LIBRARY_PATH");
  }
  const bool verbs = std::any_of(network.fabric.begin(), network.fabric.end(),
                                 [](const FabricPort& port) { return port.active && port.verbs; });
  if (verbs && !network.verbs_devices) {
    found.emplace_back(
        kName, Severity::kWarning,
        "an adapter is active, but programs can't open it (no /dev/infiniband/uverbs*), so that NCCL "
        "takes sockets",
        "docker run --device=/dev/infiniband --ulimit memlock=-1; elsewhere modprobe ib_uverbs");
  }
  if (verbs && !network.verbs_library) {
    found.emplace_back(
        kName, Severity::kWarning,
        "an adapter is active, but libibverbs.so.1 isn't installed, so that NCCL takes sockets",
        "apt-get install libibverbs1 ibverbs-providers");
  }
  constexpr std::uint64_t kEnough = std::uint64_t{1} << 30;
  if (network.locked_memory_bytes && *network.locked_memory_bytes < kEnough) {
    found.emplace_back(kName, Severity::kWarning,
                       "an adapter is active, but this process may lock only " +
                           format_bytes(*network.locked_memory_bytes) +
                           " of memory, so that NCCL may fail to "
                           "register its buffers",
                       "ulimit -l unlimited; docker run --ulimit memlock=-1");
  }
  if (const Variable* net = find_variable(sources, "NCCL_NET"); net != nullptr && net->value == "Socket") {
    found.emplace_back(kName, Severity::kWarning,
                       shown("NCCL_NET", *net) + ": an adapter is active, and NCCL takes sockets instead",
                       drop_command("NCCL_NET", *net));
  }
  if (!down.empty()) {
    found.emplace_back(kName, Severity::kNote, "not active: " + join(down, ", "), "ibstat");
  }
  if (found.empty())
    found.emplace_back(kName, Severity::kOk, "active and usable: " + list_of(port_names(network)));
  return found;
}

Findings check_ib_disable(const Sources& sources) {
  constexpr const char* kName = "NCCL_IB_DISABLE";
  const Variable* variable = find_variable(sources, kName);
  if (!switched_on(variable)) return {};
  if (nccl_number(variable) == 0)
    return {{kName, Severity::kWarning, shown(kName, *variable) + " has no effect: NCCL reads a number there",
             "export NCCL_IB_DISABLE=1, or " + drop_command(kName, *variable)}};
  const auto& fabric = sources.network.fabric;
  const bool active =
      std::any_of(fabric.begin(), fabric.end(), [](const auto& port) { return port.active && port.verbs; });
  if (!active)
    return {
        {kName, Severity::kNote, shown(kName, *variable) + " changes nothing: no adapter here is active"}};
  if (!may_leave_machine(sources))
    return {{kName, Severity::kNote, shown(kName, *variable) + " changes nothing for a run on one machine"}};
  const bool infiniband = sources.network.infiniband_active();
  return {{kName, infiniband ? Severity::kWarning : Severity::kNote,
           shown(kName, *variable) + ": " +
               (infiniband
                    ? "InfiniBand is active here, and NCCL takes TCP sockets between machines instead, many "
                      "times slower"
                    : "adapters for RoCE are active here, and NCCL takes TCP sockets instead; some networks "
                      "aren't set up for RoCE and need that"),
           drop_command(kName, *variable)}};
}

Findings check_ib_hca(const Sources& sources) {
  constexpr const char* kName = "NCCL_IB_HCA";
  const Variable* variable = find_variable(sources, kName);
  if (variable == nullptr || variable->value.empty()) return {};
  const auto& fabric = sources.network.fabric;
  if (fabric.empty())
    return {
        {kName, Severity::kNote, shown(kName, *variable) + " changes nothing: this machine has no adapter"}};
  const NameList list = parse_names(variable->value);
  const std::string mend =
      drop_command(kName, *variable) + ", or name some of: " + list_of(port_names(sources.network));
  const bool any = std::any_of(fabric.begin(), fabric.end(), [&](const FabricPort& port) {
    const bool listed = std::any_of(list.names.begin(), list.names.end(),
                                    [&](const std::string& entry) { return names_port(list, entry, port); });
    return port.active && listed != list.exclude;
  });
  const Severity grave = may_leave_machine(sources) ? Severity::kWarning : Severity::kNote;
  if (!any) {
    return {{kName, grave,
             shown(kName, *variable) + " chooses no active port, so that NCCL takes sockets between machines",
             mend}};
  }
  for (const std::string& entry : list.names) {
    const bool there = std::any_of(fabric.begin(), fabric.end(),
                                   [&](const FabricPort& port) { return names_port(list, entry, port); });
    if (!there && !list.exclude) {
      return {{kName, grave, shown(kName, *variable) + " names '" + entry + "', which isn't here", mend}};
    }
  }
  return {};
}

Findings check_fi_provider(const Sources& sources) {
  constexpr const char* kName = "FI_PROVIDER";
  const Variable* variable = find_variable(sources, kName);
  if (variable == nullptr || variable->value.empty()) return {};
  if (variable->value != "efa" || sources.network.has_efa()) return {};
  return {{kName, may_leave_machine(sources) ? Severity::kWarning : Severity::kNote,
           shown(kName, *variable) +
               ", but this machine has no EFA adapter: where NCCL's plugin for libfabric is "
               "installed it fails or falls back to sockets",
           drop_command(kName, *variable)}};
}

}  // namespace lorikeet::probe
