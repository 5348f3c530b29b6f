#include "device/selection.h"

#include "device/fixtures.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::device;
using Catch::Contains;
using test::topology_fixture;

namespace {

void check_best(const LinkModel& model, const Json& expected) {
  for (const auto& [count, gpus] : expected.object()) {
    INFO("best " << count);
    GpuSet wanted;
    for (const Json& gpu : gpus.array()) wanted.push_back(static_cast<std::size_t>(gpu.integer()));
    CHECK(best_set(model, all_gpus(model.topology()), std::stoul(count)).gpus == wanted);
  }
}

Selection best_of(const char* name, std::size_t count, GpuSet candidates = {}) {
  const auto fixture = topology_fixture(name);
  if (candidates.empty()) candidates = all_gpus(fixture.topology);
  return best_set(LinkModel(fixture.topology), candidates, count);
}

std::string error_of(const char* name, std::size_t count) {
  return test::error_text([&] { best_of(name, count); }, ErrorKind::kEnvironment);
}

}  // namespace

TEST_CASE("the best set of every fixture, by label and by measurement") {
  for (const auto& fixture : test::all_topology_fixtures()) {
    INFO(fixture.name);
    check_best(LinkModel(fixture.topology), *fixture.expected.find("best"));
    if (const Json* best = fixture.expected.find("best_measured"))
      check_best(LinkModel(fixture.topology, test::measured_of(fixture)), *best);
  }
}

TEST_CASE("measurement overrules the label: 200 h an epoch on the PIX pair, 120 h on the NODE pair") {
  const auto fixture = topology_fixture("four_cards_measured_against_label");
  const Selection by_label = best_set(LinkModel(fixture.topology), {0, 1, 2, 3}, 2);
  CHECK(fixture.topology.links[by_label.gpus[0]][by_label.gpus[1]].label() == "PIX");
  const Selection measured =
      best_set(LinkModel(fixture.topology, test::measured_of(fixture)), {0, 1, 2, 3}, 2);
  CHECK(fixture.topology.links[measured.gpus[0]][measured.gpus[1]].label() == "NODE");
  CHECK(measured.figure->source == FigureSource::kMeasuredPairs);
  CHECK(measured.figure->gb_per_second == 10);
  CHECK_THAT(measured.reason, Contains("by the slowest measured pair") && Contains("of 6 sets"));
}

TEST_CASE("only candidates are taken") {
  CHECK(best_of("pix_pairs_two_sockets", 2, {0, 2, 3, 5}).gpus == GpuSet{2, 3});
  CHECK(best_of("sixteen_behind_switch", 1, {7}).gpus == GpuSet{7});
}

TEST_CASE("what is left out is said") {
  CHECK_THAT(best_of("mig_beside_whole_cards", 2).reason, Contains("left out: GPU0, GPU2 (in MIG mode)"));
  CHECK_THAT(best_of("one_card_in_use", 2).reason,
             Contains("left out: GPU0 (less than") && Contains("free)"));
  CHECK_THAT(best_of("mixed_models", 3).reason, Contains("left out: GPU0, GPU1 (too few of its model)"));
  CHECK_THAT(best_of("mixed_models", 4).reason, Contains("models are mixed, for no model has 4 GPUs"));
  CHECK_THAT(best_of("nvswitch_8_nics", 2).reason,
             Contains("of 28 sets, first by NUMA nodes and bus order among 28 equal ones"));
}

TEST_CASE("a slice's card is taken where there is no whole one, but not for several") {
  CHECK(best_of("mig_only", 1).gpus == GpuSet{0});
  CHECK_THAT(error_of("mig_beside_whole_cards", 3),
             Contains("from 1 to 2, got 3; left out: GPU0, GPU2 (in MIG mode)"));
}

TEST_CASE("where a card's free memory isn't told, none is left out for it") {
  auto fixture = topology_fixture("one_card_in_use");
  fixture.topology.gpus[3].memory_free_bytes.reset();
  CHECK(best_set(LinkModel(fixture.topology), {0, 1, 2, 3}, 2).gpus == GpuSet{0, 1});
}

TEST_CASE("of two models the one with more free memory is taken") {
  auto fixture = topology_fixture("mixed_models");
  for (std::size_t i = 0; i < 5; ++i) fixture.topology.gpus[i].memory_free_bytes = i < 2 ? 32'000 : 24'000;
  CHECK(best_set(LinkModel(fixture.topology), all_gpus(fixture.topology), 2).gpus == GpuSet{0, 1});
}

TEST_CASE("equal sets go by the fewest NUMA nodes, then the lowest numbers") {
  CHECK(best_of("nvswitch_8_nics", 3, {1, 2, 4, 5, 6}).gpus == GpuSet{4, 5, 6});
  CHECK(best_of("nvswitch_8_nics", 3, {1, 2, 3, 4, 5, 6}).gpus == GpuSet{1, 2, 3});
}

TEST_CASE("the result is the same every time") {
  for (const auto& fixture : test::all_topology_fixtures()) {
    if (fixture.topology.gpus.size() > 8) continue;  // 65535 sets take seconds under sanitizers
    const auto once = best_sets(LinkModel(fixture.topology), all_gpus(fixture.topology));
    const auto again = best_sets(LinkModel(fixture.topology), all_gpus(fixture.topology));
    REQUIRE(once.size() == again.size());
    for (std::size_t i = 0; i < once.size(); ++i) {
      CHECK(once[i].gpus == again[i].gpus);
      CHECK(once[i].reason == again[i].reason);
    }
  }
}

TEST_CASE("best sets of all counts; one GPU has no figure, slices rule several out") {
  const auto fixture = topology_fixture("four_3090_two_pix_pairs");
  const auto best = best_sets(LinkModel(fixture.topology), all_gpus(fixture.topology));
  REQUIRE(best.size() == 4);
  CHECK_FALSE(best[0].figure);
  CHECK(best[1].figure->source == FigureSource::kPrior);
  CHECK(best[1].sets == 6);
  const auto slices = topology_fixture("mig_only");
  CHECK(best_sets(LinkModel(slices.topology), {0}).size() == 1);
  CHECK(best_sets(LinkModel(Topology{}), {}).empty());
}

TEST_CASE("more GPUs than there are, or none, is an error that says how many could be") {
  CHECK_THAT(error_of("phb_only", 3), Contains("expected a number of GPUs from 1 to 2, got 3"));
  CHECK_THAT(error_of("phb_only", 0), Contains("from 1 to 2, got 0"));
  const Topology none;
  CHECK_THAT(test::error_text([&] { best_set(LinkModel(none), {}, 1); }, ErrorKind::kEnvironment),
             Contains("there is none"));
}

TEST_CASE("more than sixteen candidates are refused, not guessed at") {
  Topology topology;
  for (int i = 0; i < 17; ++i) topology.gpus.emplace_back().label = "GPU" + std::to_string(i);
  topology.links.assign(17, std::vector<Link>(17, Link{LinkKind::kSys, 0, {}}));
  CHECK_THAT(test::error_text([&] { best_set(LinkModel(topology), all_gpus(topology), 2); },
                              ErrorKind::kEnvironment),
             Contains("at most 16 GPUs to choose from, got 17"));
  CHECK(best_set(LinkModel(topology), {1, 16}, 2).gpus == GpuSet{1, 16});
}
