#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "device/topology_json.h"
#include "support/paths.h"

namespace lorikeet::test {

/// A fixture of tests/data/topology: the text of a matrix, and beside it what is expected of it.
struct TopologyFixture {
  std::string name;
  device::Topology topology;
  Json expected;
};

inline std::filesystem::path topology_folder() { return source_dir() / "tests" / "data" / "topology"; }

inline TopologyFixture topology_fixture(const std::string& name) {
  const auto path = topology_folder() / name;
  TopologyFixture fixture{name,
                          device::parse_saved_topology(read_file(path.string() + ".txt"), name).topology,
                          Json::parse(read_file(path.string() + ".json"), name + ".json")};
  // nvidia-smi's matrix doesn't have the memory.
  if (const Json* bytes = fixture.expected.find("free_bytes")) {
    for (std::size_t i = 0; i < fixture.topology.gpus.size(); ++i)
      fixture.topology.gpus[i].memory_free_bytes = static_cast<std::uint64_t>(bytes->array().at(i).integer());
  }
  return fixture;
}

inline std::vector<TopologyFixture> all_topology_fixtures() {
  std::vector<TopologyFixture> fixtures;
  for (const auto& entry : std::filesystem::directory_iterator(topology_folder())) {
    if (entry.path().extension() == ".txt")
      fixtures.push_back(topology_fixture(entry.path().stem().string()));
  }
  return fixtures;
}

/// What was measured of a fixture, empty where nothing was.
inline device::Measurements measured_of(const TopologyFixture& fixture) {
  const Json* measured = fixture.expected.find("measured");
  if (measured == nullptr) return {};
  Json whole = device::topology_json(fixture.topology, {}, {});
  for (Json::Member& member : whole.object()) {
    if (member.first == "measured") member.second = *measured;
  }
  return device::read_topology_json(whole, fixture.name).measured;
}

}  // namespace lorikeet::test
