#include "probe/link_probe.h"

#include <algorithm>
#include <map>

#include "device/selection.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::probe;
using device::GpuSet;

namespace {

// Four cards without NVLink: 0-1 and 2-3 behind a switch each (PIX), all others through the host (NODE).
device::Topology two_pairs() {
  device::Topology topology;
  topology.links.assign(4, std::vector<device::Link>(4, {device::LinkKind::kNode, 0, true}));
  for (std::size_t i = 0; i < 4; ++i) {
    device::TopologyGpu gpu;
    gpu.label = "GPU" + std::to_string(i);
    topology.gpus.push_back(gpu);
    topology.links[i][i] = {device::LinkKind::kSelf, 0, {}};
    topology.links[i][i ^ 1] = {device::LinkKind::kPix, 0, true};
  }
  return topology;
}

// Answers from tables and writes down what it was asked.
class FakeTimer : public LinkTimer {
 public:
  bool peers = true;
  double direct = 12, staged = 6;  ///< of one copy alone
  std::map<GpuSet, double> all_reduce_rate;
  double others = 5;  ///< of sets that aren't in it; 0 fails
  std::vector<GpuSet> reduced;
  std::vector<std::vector<Copy>> at_once;
  std::vector<bool> at_once_by_peer_access;
  int pairs = 0;
  std::int64_t bytes = 0;

  bool has_peer_access(const Copy&) override { return peers; }
  std::vector<double> copy(const std::vector<Copy>& copies, bool peer_access) override {
    REQUIRE((peers || !peer_access));
    const double alone = peer_access ? direct : staged;
    if (copies.size() == 1) {
      ++pairs;
      // The way from 3 to 2 is slower than all others.
      return {copies[0] == Copy{3, 2} ? alone / 2 : alone};
    }
    at_once.push_back(copies);
    at_once_by_peer_access.push_back(peer_access);
    std::vector<double> rates(copies.size(), alone);
    rates.back() = alone / 4;
    return rates;
  }
  std::optional<double> all_reduce(const GpuSet& gpus, std::int64_t of) override {
    reduced.push_back(gpus);
    bytes = of;
    const auto found = all_reduce_rate.find(gpus);
    const double rate = found == all_reduce_rate.end() ? others : found->second;
    return rate > 0 ? std::optional(rate) : std::nullopt;
  }
};

const LinkProgress kSilent{[](const std::string&) {}, [](const device::Measurements&) {}};

LinkProbe run(FakeTimer& timer, const GpuSet& candidates = {0, 1, 2, 3}) {
  static device::Topology topology = two_pairs();
  return probe_links(timer, topology, candidates, 1000, kSilent);
}

std::size_t count_of(const std::vector<GpuSet>& sets, std::size_t size) {
  return static_cast<std::size_t>(
      std::count_if(sets.begin(), sets.end(), [&](const GpuSet& set) { return set.size() == size; }));
}

}  // namespace

TEST_CASE("every ordered pair is timed by both ways, and the faster one counts") {
  FakeTimer timer;
  const LinkProbe probe = run(timer);
  CHECK(timer.pairs == 2 * 12);
  CHECK(probe.with_peer_access[0][1] == 12.0);
  CHECK(probe.through_memory[0][1] == 6.0);
  CHECK(probe.measured.pairs[0][1] == 12.0);
  CHECK(probe.measured.pairs[3][2] == 6.0);
  CHECK(probe.measured.pairs[2][3] == 12.0);
  CHECK_FALSE(probe.measured.pairs[2][2]);
}

TEST_CASE("cards without peer access are timed through main memory alone") {
  FakeTimer timer;
  timer.peers = false;
  const LinkProbe probe = run(timer);
  CHECK(timer.pairs == 12);
  CHECK_FALSE(probe.with_peer_access[0][1]);
  CHECK(probe.measured.pairs[0][1] == 6.0);
  CHECK(std::none_of(timer.at_once_by_peer_access.begin(), timer.at_once_by_peer_access.end(),
                     [](bool by) { return by; }));
}

TEST_CASE("a set's copies run at once around a ring, and its slowest counts") {
  FakeTimer timer;
  const LinkProbe probe = run(timer, {0, 2, 3});
  REQUIRE(timer.at_once.size() == 4);  // three pairs and the three
  CHECK(timer.at_once.back() == std::vector<Copy>{{0, 2}, {2, 3}, {3, 0}});
  CHECK(probe.sets.back().gpus == GpuSet{0, 2, 3});
  CHECK(probe.sets.back().at_once_gb_per_second == 3.0);
  CHECK(timer.bytes == 1000);
}

TEST_CASE("likely sets are timed until none that is left promises more than the best") {
  FakeTimer timer;
  // As the copies promise: four of the six pairs are enough.
  for (const GpuSet& pair : {GpuSet{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}})
    timer.all_reduce_rate[pair] = 12;
  run(timer);
  CHECK(count_of(timer.reduced, 2) == kLeastSets);
  CHECK(count_of(timer.reduced, 3) == 4);
  CHECK(count_of(timer.reduced, 4) == 1);
  CHECK(std::adjacent_find(timer.reduced.begin(), timer.reduced.end()) == timer.reduced.end());
  // All worse than promised: so are those that weren't timed.
  FakeTimer slow;
  run(slow);
  CHECK(count_of(slow.reduced, 2) == kLeastSets);
}

TEST_CASE("a set whose all-reduce fails counts as measured, and others are tried") {
  FakeTimer timer;
  for (const GpuSet& pair : {GpuSet{0, 1}, {0, 2}, {0, 3}, {1, 2}}) timer.all_reduce_rate[pair] = 0;
  const LinkProbe probe = run(timer);
  CHECK_FALSE(probe.sets.at(0).all_reduce_gb_per_second);
  CHECK(probe.measured.sets.at(0).gb_per_second == 0);
  const device::Topology topology = two_pairs();
  const device::LinkModel model(topology, probe.measured);
  CHECK(device::best_set(model, {0, 1, 2, 3}, 2).gpus == GpuSet{1, 3});
  CHECK(device::best_set(model, {0, 1, 2, 3}, 2).figure->gb_per_second == 5);
}

TEST_CASE("where no all-reduce of a size works, nothing of that size is kept") {
  FakeTimer timer;
  timer.others = 0;
  timer.all_reduce_rate[{0, 1, 2, 3}] = 5;
  const LinkProbe probe = run(timer);
  REQUIRE(probe.measured.sets.size() == 1);
  CHECK(probe.measured.sets[0].gpus == GpuSet{0, 1, 2, 3});
  CHECK(probe.sets.size() > 1);  // they are reported
  const device::Topology topology = two_pairs();
  const device::LinkModel model(topology, probe.measured);
  CHECK(device::best_set(model, {0, 1, 2, 3}, 2).figure->gb_per_second > 0);
}

TEST_CASE("what was measured so far is told after the pairs and after each set") {
  FakeTimer timer;
  std::vector<std::size_t> sets;
  const LinkProgress progress{[](const std::string&) {},
                              [&](const device::Measurements& measured) {
                                CHECK(measured.pairs[0][1]);
                                sets.push_back(measured.sets.size());
                              }};
  const device::Topology topology = two_pairs();
  probe_links(timer, topology, {0, 1}, 1000, progress);
  CHECK(sets == std::vector<std::size_t>{0, 1});
}

TEST_CASE("of many equal sets that disappoint, a limited number is timed") {
  device::Topology topology;
  const std::size_t size = 8;
  topology.links.assign(size, std::vector<device::Link>(size, {device::LinkKind::kPhb, 0, true}));
  for (std::size_t i = 0; i < size; ++i) {
    topology.gpus.emplace_back().label = "GPU" + std::to_string(i);
    topology.links[i][i] = {device::LinkKind::kSelf, 0, {}};
  }
  FakeTimer timer;
  probe_links(timer, topology, device::all_gpus(topology), 1000, kSilent);
  CHECK(count_of(timer.reduced, 4) == kLeastSets);  // of 70
  CHECK(count_of(timer.reduced, 8) == 1);
  FakeTimer failing;
  failing.others = 0;
  probe_links(failing, topology, device::all_gpus(topology), 1000, kSilent);
  CHECK(count_of(failing.reduced, 4) == kMostSets);
}

TEST_CASE("what was measured decides: the pair behind one switch loses when its all-reduce is slower") {
  FakeTimer timer;
  timer.all_reduce_rate = {{{0, 1}, 3}, {{2, 3}, 3}, {{0, 2}, 5}, {{1, 3}, 5}, {{0, 3}, 5.5}, {{1, 2}, 5}};
  const LinkProbe probe = run(timer);
  const device::Topology topology = two_pairs();
  CHECK(device::best_set(device::LinkModel(topology), {0, 1, 2, 3}, 2).gpus == GpuSet{0, 1});
  CHECK(device::best_set(device::LinkModel(topology, probe.measured), {0, 1, 2, 3}, 2).gpus == GpuSet{0, 3});
}
