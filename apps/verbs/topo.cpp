#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/verbs/between.h"
#include "apps/verbs/home_path.h"
#include "apps/verbs/topo_measure.h"
#include "apps/verbs/verbs.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/strings.h"
#include "device/cards.h"
#include "device/inventory_json.h"
#include "device/nics.h"
#include "device/selection.h"
#include "device/topology_json.h"
#include "device/topology_text.h"
#include "device/topology_tree.h"
#include "device/visible.h"

namespace lorikeet::apps {
namespace {

constexpr std::uint64_t kMostFileBytes = std::uint64_t{16} << 20;

struct Options {
  std::string from;
  std::optional<std::size_t> select;
  bool json = false;
  bool measure = false;
  std::int64_t payload_mib = 160;
};

// What there is to show, of this machine or of a file.
struct Shown {
  device::SavedTopology saved;
  std::optional<device::Inventory> inventory;  // of this machine
  device::GpuSet candidates;                   // what may be selected
  std::optional<probe::LinkProbe> probe;       // what was measured just now
};

std::string read_stdin() {
  std::string text;
  std::array<char, 4096> part{};
  while (std::cin.read(part.data(), part.size()) || std::cin.gcount() > 0) {
    text.append(part.data(), static_cast<std::size_t>(std::cin.gcount()));
    if (text.size() > kMostFileBytes)
      throw Error("[topology] stdin: expected at most " + format_bytes(kMostFileBytes) + ", got more");
  }
  return text;
}

Shown read_saved(const std::string& path) {
  Shown shown;
  const bool piped = path == "-";
  shown.saved = device::parse_saved_topology(piped ? read_stdin() : read_file(path, kMostFileBytes),
                                             piped ? "stdin" : path);
  shown.candidates = device::all_gpus(shown.saved.topology);
  return shown;
}

Shown read_machine() {
  Shown shown;
  device::Snapshot snapshot = device::take_snapshot();
  shown.inventory = std::move(snapshot.inventory);
  shown.saved = {std::move(snapshot.topology), std::move(snapshot.measured)};
  for (const device::LostGpu& lost : shown.inventory->lost) {
    log_warning("the GPU with NVML's number " + std::to_string(lost.nvml_index) +
                (lost.description.empty() ? "" : ", " + lost.description + ",") +
                " has stopped answering: " + lost.reason);
  }
  device::add_nics(shown.saved.topology, "/sys");

  const device::VisibleDevices visible = device::visible_devices(*shown.inventory);
  if (!visible.stopped.empty())
    log_warning("CUDA_VISIBLE_DEVICES: " + visible.stopped + "; only what stands before it is visible");
  for (const device::VisibleDevice& one : visible.devices) shown.candidates.push_back(one.gpu);
  std::sort(shown.candidates.begin(), shown.candidates.end());
  shown.candidates.erase(std::unique(shown.candidates.begin(), shown.candidates.end()),
                         shown.candidates.end());
  if (shown.candidates.size() < shown.saved.topology.gpus.size())
    log_info("CUDA_VISIBLE_DEVICES leaves " + std::to_string(shown.candidates.size()) + " of " +
             std::to_string(shown.saved.topology.gpus.size()) + " GPUs to select from");
  return shown;
}

std::string numbers(const device::GpuSet& gpus) {
  std::vector<std::string> texts;
  for (const std::size_t gpu : gpus) texts.push_back(std::to_string(gpu));
  return join(texts, ",");
}

std::string figure(const device::Selection& best) {
  return best.figure ? format_number("%.1f", best.figure->gb_per_second) : "-";
}

void print_row(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    line += cells[i];
    if (i + 1 < cells.size()) line.append(widths[i] - std::min(widths[i], cells[i].size()) + 2, ' ');
  }
  std::cout << line << "\n";
}

void print_table(const std::vector<device::Selection>& best) {
  std::vector<std::size_t> widths = {4, 4, 4};
  for (const device::Selection& one : best) widths[1] = std::max(widths[1], numbers(one.gpus).size());
  std::cout << "\nBest sets, with their all-reduce bus bandwidth:\n";
  print_row({"GPUs", "best", "GB/s", "why"}, widths);
  for (const device::Selection& one : best)
    print_row({std::to_string(one.gpus.size()), numbers(one.gpus), figure(one), one.reason}, widths);
}

void print_all(const Shown& shown, const std::vector<device::Selection>& best) {
  const device::Topology& topology = shown.saved.topology;
  if (topology.gpus.empty()) {
    const bool absent = shown.inventory && !shown.inventory->absent.empty();
    std::cout << "There is no GPU" << (absent ? ": " + escape_control(shown.inventory->absent) : " here")
              << ".\n";
    return;
  }
  std::cout << escape_control(device::format_topology_text(topology)) << "\n"
            << escape_control(device::format_topology_tree(topology));
  if (shown.probe) print_probe(topology, *shown.probe);
  if (!best.empty()) print_table(best);
}

std::vector<device::Selection> select(const device::LinkModel& model, const Shown& shown,
                                      const Options& options) {
  if (options.select) {
    try {
      return {device::best_set(model, shown.candidates, *options.select)};
    } catch (const Error& error) {
      // GPUs that a file doesn't have are a mistake in the input, not in this machine.
      if (options.from.empty()) throw;
      throw Error(error.what());
    }
  }
  if (shown.candidates.size() <= device::kMostCandidates) return device::best_sets(model, shown.candidates);
  log_warning(std::to_string(shown.candidates.size()) + " GPUs are too many to search for best sets");
  return {};
}

int run(const Options& options) {
  Shown shown = options.from.empty() ? read_machine() : read_saved(options.from);
  for (const std::string& note : shown.saved.topology.notes) log_warning(note);
  if (options.measure) {
    shown.probe =
        measure_links(*shown.inventory, shown.saved.topology, shown.candidates, options.payload_mib << 20);
    shown.saved.measured = shown.probe->measured;
  }
  const device::LinkModel model(shown.saved.topology, shown.saved.measured);
  const auto best = select(model, shown, options);
  if (options.json) {
    Json json = device::topology_json(shown.saved.topology, shown.saved.measured, best);
    if (shown.inventory) json.set("inventory", device::inventory_json(*shown.inventory));
    if (shown.probe) json.set("probe", probe_json(*shown.probe));
    std::cout << json.dump(2) << "\n";
  } else if (options.select) {
    log_info(best[0].reason + (best[0].figure ? ", " + figure(best[0]) + " GB/s" : ""));
    std::cout << numbers(best[0].gpus) << "\n";
  } else {
    print_all(shown, best);
  }
  return 0;
}

}  // namespace

Verb add_topo(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "topo", "Shows how this machine's GPUs are joined, and which of them to take for a run on several.");
  CLI::Option* from = command
                          ->add_option("--from", o->from,
                                       "reads a file instead, or stdin for '-': what `nvidia-smi topo -m` "
                                       "printed (`nvidia-smi -L` before it tells the "
                                       "models), or this verb's JSON")
                          ->transform(home_path());
  command
      ->add_option(
          "--select", o->select,
          "prints only the best set of so many GPUs, for CUDA_VISIBLE_DEVICES (numbers by PCI address)")
      ->check(between(1, 1024));
  command->add_flag("--json", o->json, "everything as JSON (docs/topology.md)");
  CLI::Option* measure =
      command->add_flag("--measure", o->measure,
                        "times copies between the GPUs and all-reduces over the likely sets, and "
                        "keeps the result: from then on runs on this machine choose by it");
  measure->excludes(from);
  command
      ->add_option(
          "--payload-mib", o->payload_mib,
          "with --measure: what an all-reduce sums, as the adapter's fp32 gradients of a run (160: rank "
          "16 on all linear layers of an 8B Llama)")
      ->check(CLI::Range(1, 16384))
      ->needs(measure)
      ->capture_default_str();
  return {command, [o] { return run(*o); }};
}

}  // namespace lorikeet::apps
