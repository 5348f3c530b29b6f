#include "device/topology_json.h"

#include <utility>

#include "base/strings.h"
#include "device/number_list.h"
#include "device/topology_text.h"

namespace lorikeet::device {
namespace {

constexpr int kMostNode = 65535;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json or_null(const std::optional<unsigned>& value) {
  return value ? Json(static_cast<std::int64_t>(*value)) : Json();
}

Json list_or_null(const std::vector<int>& numbers) {
  return numbers.empty() ? Json() : Json(format_number_list(numbers));
}

Json gpu_json(const TopologyGpu& gpu) {
  return Json::Object{{"label", gpu.label},
                      {"model", or_null(gpu.model)},
                      {"uuid", or_null(gpu.uuid)},
                      {"bus_id", or_null(gpu.bus_id)},
                      {"memory_total_bytes", or_null(gpu.memory_total_bytes)},
                      {"memory_free_bytes", or_null(gpu.memory_free_bytes)},
                      {"cpus", list_or_null(gpu.cpus)},
                      {"numa_nodes", list_or_null(gpu.numa_nodes)},
                      {"memory_numa_node", or_null(gpu.memory_numa_node)},
                      {"mig", or_null(gpu.mig)},
                      {"pcie_width", or_null(gpu.pcie_width)},
                      {"pcie_generation", or_null(gpu.pcie_generation)},
                      {"nvlink_gb_per_second", or_null(gpu.nvlink_gb_per_second)},
                      {"nvswitch", or_null(gpu.nvswitch)}};
}

Json set_json(const GpuSet& gpus) { return Json::Array(gpus.begin(), gpus.end()); }

Json measured_json(const Measurements& measured) {
  Json::Array pairs, sets;
  for (const auto& row : measured.pairs) {
    Json::Array cells;
    for (const auto& rate : row) cells.push_back(or_null(rate));
    pairs.emplace_back(std::move(cells));
  }
  for (const MeasuredSet& set : measured.sets)
    sets.emplace_back(Json::Object{{"gpus", set_json(set.gpus)}, {"gb_per_second", set.gb_per_second}});
  return Json::Object{{"pairs_gb_per_second", std::move(pairs)}, {"sets", std::move(sets)}};
}

Json selection_json(const Selection& best) {
  static constexpr const char* kSources[] = {"estimated", "measured pairs", "measured set"};
  Json rate, source;
  if (best.figure) {
    rate = best.figure->gb_per_second;
    source = kSources[static_cast<std::size_t>(best.figure->source)];
  }
  return Json::Object{{"count", static_cast<std::int64_t>(best.gpus.size())},
                      {"gpus", set_json(best.gpus)},
                      {"all_reduce_gb_per_second", std::move(rate)},
                      {"source", std::move(source)},
                      {"reason", best.reason}};
}

std::optional<std::string> text_of(const JsonView& view, std::string_view key) {
  const auto value = view.maybe(key);
  return value ? std::optional(value->as_string()) : std::nullopt;
}

template <typename T>
std::optional<T> whole_of(const JsonView& view, std::string_view key, std::int64_t least, std::int64_t most) {
  const auto value = view.maybe(key);
  if (!value) return std::nullopt;
  const std::int64_t number = value->as_int();
  if (number < least || number > most)
    value->fail("a number from " + std::to_string(least) + " to " + std::to_string(most));
  return static_cast<T>(number);
}

std::optional<bool> bool_of(const JsonView& view, std::string_view key) {
  const auto value = view.maybe(key);
  return value ? std::optional(value->as_bool()) : std::nullopt;
}

std::optional<double> rate_of(const JsonView& value) {
  if (value.json().is_null()) return std::nullopt;
  const double rate = value.as_number();
  if (!(rate > 0)) value.fail("a positive number of GB/s");
  return rate;
}

std::vector<int> numbers_of(const JsonView& view, std::string_view key) {
  const auto text = view.maybe(key);
  if (!text) return {};
  auto numbers = parse_number_list(text->as_string());
  if (!numbers) text->fail("a list of numbers, like \"0-19,40-59\"");
  return *std::move(numbers);
}

// A device's label or name, which the matrix shows between blanks.
std::string name_of(const JsonView& view) {
  const std::string& name = view.as_string();
  if (name.find_first_of(" \t\n") != std::string::npos || escape_control(name) != name)
    view.fail("a name without blanks and control characters");
  return name;
}

TopologyGpu read_gpu(const JsonView& view) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;
  TopologyGpu gpu;
  gpu.label = name_of(view.at("label"));
  gpu.model = text_of(view, "model");
  gpu.uuid = text_of(view, "uuid");
  gpu.bus_id = text_of(view, "bus_id");
  gpu.memory_total_bytes = whole_of<std::uint64_t>(view, "memory_total_bytes", 0, kMostBytes);
  gpu.memory_free_bytes = whole_of<std::uint64_t>(view, "memory_free_bytes", 0, kMostBytes);
  gpu.cpus = numbers_of(view, "cpus");
  gpu.numa_nodes = numbers_of(view, "numa_nodes");
  gpu.memory_numa_node = whole_of<int>(view, "memory_numa_node", 0, kMostNode);
  gpu.mig = bool_of(view, "mig");
  gpu.pcie_width = whole_of<unsigned>(view, "pcie_width", 1, 32);
  gpu.pcie_generation = whole_of<unsigned>(view, "pcie_generation", 1, 6);
  if (const auto rate = view.maybe("nvlink_gb_per_second")) gpu.nvlink_gb_per_second = rate_of(*rate);
  gpu.nvswitch = bool_of(view, "nvswitch");
  return gpu;
}

std::vector<JsonView> rows_of(const JsonView& view, std::size_t count) {
  auto rows = view.items();
  if (rows.size() != count) view.fail("an array of " + std::to_string(count));
  return rows;
}

void read_links(const JsonView& view, Topology& topology) {
  const std::size_t count = topology.size();
  topology.links.assign(count, std::vector<Link>(count));
  const auto rows = rows_of(view, count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto cells = rows_of(rows[i], count);
    for (std::size_t j = 0; j < count; ++j) {
      const auto link = parse_link(cells[j].as_string());
      if (!link) cells[j].fail("a link class (X, NV#, PIX, PXB, PHB, NODE, SYS, ?)");
      if ((link->kind == LinkKind::kSelf) != (i == j)) cells[j].fail("X on the diagonal and only there");
      if (j < i && topology.links[j][i] != *link)
        cells[j].fail("the class of the other direction, " + topology.links[j][i].label());
      topology.links[i][j] = *link;
    }
  }
}

void read_p2p(const JsonView& view, Topology& topology) {
  const std::size_t count = topology.gpus.size();
  const auto rows = rows_of(view, count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto cells = rows_of(rows[i], count);
    for (std::size_t j = 0; j < count; ++j) {
      if (!cells[j].json().is_null()) topology.links[i][j].p2p = cells[j].as_bool();
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (topology.links[i][j].p2p != topology.links[j][i].p2p)
        rows[i].fail("peer access to be the same in both directions");
    }
  }
}

Measurements read_measured(const JsonView& view, std::size_t gpus) {
  Measurements measured;
  if (const auto pairs = view.maybe("pairs_gb_per_second"); pairs && !pairs->items().empty()) {
    for (const JsonView& row : rows_of(*pairs, gpus)) {
      auto& rates = measured.pairs.emplace_back();
      for (const JsonView& cell : rows_of(row, gpus)) rates.push_back(rate_of(cell));
    }
  }
  if (const auto sets = view.maybe("sets")) {
    for (const JsonView& set : sets->items()) {
      MeasuredSet& known = measured.sets.emplace_back();
      for (const JsonView& gpu : set.at("gpus").items()) {
        const std::int64_t index = gpu.as_int();
        const bool ascending = known.gpus.empty() || index > static_cast<std::int64_t>(known.gpus.back());
        if (index < 0 || index >= static_cast<std::int64_t>(gpus) || !ascending)
          gpu.fail("numbers of GPUs, ascending, below " + std::to_string(gpus));
        known.gpus.push_back(static_cast<std::size_t>(index));
      }
      if (known.gpus.size() < 2) set.at("gpus").fail("two GPUs or more");
      const JsonView rate = set.at("gb_per_second");
      known.gb_per_second = rate.as_number();
      if (!(known.gb_per_second >= 0)) rate.fail("a number of GB/s, 0 where the all-reduce failed");
    }
  }
  return measured;
}

}  // namespace

Json topology_json(const Topology& topology, const Measurements& measured,
                   const std::vector<Selection>& best) {
  Json::Array gpus, nics, links, p2p, sets;
  for (const TopologyGpu& gpu : topology.gpus) gpus.push_back(gpu_json(gpu));
  for (const TopologyNic& nic : topology.nics)
    nics.emplace_back(Json::Object{{"label", nic.label}, {"name", nic.name}});
  for (const auto& row : topology.links) {
    Json::Array labels;
    for (const Link& link : row) labels.emplace_back(link.label());
    links.emplace_back(std::move(labels));
  }
  for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
    Json::Array row;
    for (std::size_t j = 0; j < topology.gpus.size(); ++j) row.push_back(or_null(topology.links[i][j].p2p));
    p2p.emplace_back(std::move(row));
  }
  for (const Selection& selection : best) sets.push_back(selection_json(selection));
  return Json::Object{{"gpus", std::move(gpus)},
                      {"nics", std::move(nics)},
                      {"links", std::move(links)},
                      {"p2p", std::move(p2p)},
                      {"notes", Json::Array(topology.notes.begin(), topology.notes.end())},
                      {"measured", measured_json(measured)},
                      {"best", std::move(sets)}};
}

SavedTopology read_topology_json(const Json& json, const std::string& where) {
  const JsonView view(json, where);
  SavedTopology saved;
  for (const JsonView& gpu : view.at("gpus").items()) saved.topology.gpus.push_back(read_gpu(gpu));
  if (const auto nics = view.maybe("nics")) {
    for (const JsonView& nic : nics->items()) {
      const auto name = nic.maybe("name");
      saved.topology.nics.push_back({name_of(nic.at("label")), name ? name_of(*name) : ""});
    }
  }
  if (saved.topology.size() > kMostTopologyDevices)
    view.at("gpus").fail("at most " + std::to_string(kMostTopologyDevices) + " GPUs and NICs");
  read_links(view.at("links"), saved.topology);
  if (const auto p2p = view.maybe("p2p")) read_p2p(*p2p, saved.topology);
  if (const auto notes = view.maybe("notes")) {
    for (const JsonView& note : notes->items()) saved.topology.notes.push_back(note.as_string());
  }
  if (const auto measured = view.maybe("measured"))
    saved.measured = read_measured(*measured, saved.topology.gpus.size());
  return saved;
}

SavedTopology parse_saved_topology(std::string_view bytes, const std::string& where) {
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && bytes[first] == '{')
    return read_topology_json(Json::parse(bytes, where), where);
  return {parse_topology_text(bytes, where), {}};
}

}  // namespace lorikeet::device
