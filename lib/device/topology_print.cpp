#include <algorithm>
#include <string>
#include <vector>

#include "device/number_list.h"
#include "device/topology_text.h"

namespace lorikeet::device {
namespace {

using Row = std::vector<std::string>;

std::string number_or_na(const std::vector<int>& numbers) {
  return numbers.empty() ? "N/A" : format_number_list(numbers);
}

Row header_of(const Topology& topology) {
  Row header{""};
  for (std::size_t i = 0; i < topology.size(); ++i) header.push_back(topology.label(i));
  header.insert(header.end(), {"CPU Affinity", "NUMA Affinity", "GPU NUMA ID"});
  return header;
}

Row row_of(const Topology& topology, std::size_t device) {
  Row row{topology.label(device)};
  for (const Link& link : topology.links[device])
    row.push_back(link.kind == LinkKind::kUnknown ? "N/A" : link.label());
  if (device < topology.gpus.size()) {
    const TopologyGpu& gpu = topology.gpus[device];
    row.insert(row.end(), {number_or_na(gpu.cpus), number_or_na(gpu.numa_nodes),
                           gpu.memory_numa_node ? std::to_string(*gpu.memory_numa_node) : "N/A"});
  }
  return row;
}

}  // namespace

std::string format_topology_text(const Topology& topology) {
  std::vector<Row> rows{header_of(topology)};
  for (std::size_t i = 0; i < topology.size(); ++i) rows.push_back(row_of(topology, i));
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size() + 2);
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - row[i].size(), ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  bool first = true;
  for (const TopologyNic& nic : topology.nics) {
    if (nic.name.empty() || nic.name == nic.label) continue;
    text += (first ? "\nNIC Legend:\n\n  " : "  ") + nic.label + ": " + nic.name + "\n";
    first = false;
  }
  return text;
}

}  // namespace lorikeet::device
