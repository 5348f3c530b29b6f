// Any bytes as a saved topology, text or JSON: of what is accepted, links are a symmetric square, some best
// set is found, and its JSON reads back equal.
#include "device/selection.h"
#include "device/topology_json.h"
#include "device/topology_text.h"
#include "fuzz.h"

using namespace lorikeet;
using namespace lorikeet::device;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto saved = fuzz::accepted([&] { return parse_saved_topology(fuzz::view(data, size), "input"); });
  if (!saved) return 0;
  const Topology& topology = saved->topology;
  fuzz::require(topology.links.size() == topology.size());
  for (std::size_t i = 0; i < topology.size(); ++i) {
    fuzz::require(topology.links[i].size() == topology.size());
    for (std::size_t j = 0; j < topology.size(); ++j)
      fuzz::require(topology.links[i][j] == topology.links[j][i]);
  }
  const std::size_t gpus = topology.gpus.size();
  const LinkModel model(topology, saved->measured);
  if (gpus > 0 && gpus <= 8) fuzz::require(!best_sets(model, all_gpus(topology)).empty());

  const Json json = topology_json(topology, saved->measured, {});
  fuzz::require(topology_json(read_topology_json(json, "again").topology, saved->measured, {}).dump() ==
                json.dump());
  return 0;
}
