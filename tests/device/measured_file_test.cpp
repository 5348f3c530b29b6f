#include "device/measured_file.h"

#include <cstdlib>

#include "base/file.h"
#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;
using namespace lorikeet::device;

namespace {

struct Two {
  Inventory inventory;
  Topology topology;
};

Two two_cards(const char* second = "GPU-b") {
  Two two;
  two.inventory.driver_version = "999.01";
  for (const char* uuid : {"GPU-a", second}) {
    GpuInfo gpu;
    gpu.uuid = uuid;
    two.inventory.gpus.push_back(gpu);
    TopologyGpu node;
    node.label = "GPU" + std::to_string(two.topology.gpus.size());
    node.uuid = uuid;
    two.topology.gpus.push_back(node);
  }
  const Link self{LinkKind::kSelf, 0, {}}, other{LinkKind::kNode, 0, false};
  two.topology.links = {{self, other}, {other, self}};
  return two;
}

// XDG_CACHE_HOME for the life of this object.
class CacheHome {
 public:
  explicit CacheHome(const std::string& path) { setenv("XDG_CACHE_HOME", path.c_str(), 1); }
  ~CacheHome() { unsetenv("XDG_CACHE_HOME"); }
};

const Measurements kMeasured{{{std::nullopt, 10.5}, {11.0, std::nullopt}}, {{{0, 1}, 8.25}}};

}  // namespace

TEST_CASE("measurements come back for the same cards") {
  const test::TemporaryFolder folder;
  const CacheHome home(folder.path().string());
  const Two two = two_cards();
  const auto file = measurements_file(two.inventory);
  REQUIRE(file);
  CHECK(file->parent_path() == folder / "lorikeet" / "links");
  CHECK(load_measurements(*file, two.topology).empty());
  save_measurements(*file, two.topology, kMeasured);
  const Measurements loaded = load_measurements(*file, two.topology);
  CHECK(loaded.pairs == kMeasured.pairs);
  REQUIRE(loaded.sets.size() == 1);
  CHECK(loaded.sets[0].gpus == GpuSet{0, 1});
  CHECK(loaded.sets[0].gb_per_second == 8.25);
}

TEST_CASE("measuring some of the cards again keeps what is known of the others") {
  const test::TemporaryFolder folder;
  const Two two = two_cards();
  const auto file = folder / "links.json";
  save_measurements(file, two.topology, {{{{}, 8.5}, {7.5, {}}}, {{{0, 1}, 8}}});
  save_measurements(file, two.topology, {{{{}, 9.5}, {{}, {}}}, {}});
  Measurements loaded = load_measurements(file, two.topology);
  CHECK(loaded.pairs[0][1] == 9.5);
  CHECK(loaded.pairs[1][0] == 7.5);
  REQUIRE(loaded.sets.size() == 1);
  save_measurements(file, two.topology, {{}, {{{0, 1}, 0}}});
  loaded = load_measurements(file, two.topology);
  REQUIRE(loaded.sets.size() == 1);
  CHECK(loaded.sets[0].gb_per_second == 0);
  CHECK(loaded.pairs[0][1] == 9.5);
}

TEST_CASE("another card or driver has another file, and a card without UUID none") {
  const test::TemporaryFolder folder;
  const CacheHome home(folder.path().string());
  const Two two = two_cards();
  Inventory newer = two.inventory;
  newer.driver_version = "999.02";
  CHECK(measurements_file(newer) != measurements_file(two.inventory));
  CHECK(measurements_file(two_cards("GPU-c").inventory) != measurements_file(two.inventory));
  newer.gpus[1].uuid.reset();
  CHECK_FALSE(measurements_file(newer));
  CHECK_FALSE(measurements_file({}));
}

TEST_CASE("a file that is broken or of other cards is passed over") {
  const test::TemporaryFolder folder;
  const Two two = two_cards();
  const auto file = folder / "links.json";
  write_file_atomic(file, "{\"gpus\": [");
  CHECK(load_measurements(file, two.topology).empty());
  save_measurements(file, two_cards("GPU-c").topology, kMeasured);
  CHECK(load_measurements(file, two.topology).empty());
}
