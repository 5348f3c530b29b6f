#include "device/topology_json.h"

#include "device/fixtures.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::device;
using Catch::Contains;

namespace {

SavedTopology parse(const std::string& text) { return parse_saved_topology(text, "saved.json"); }

std::string error_of(const std::string& text) {
  return test::error_text([&] { parse(text); });
}

// Two GPUs with these links and more members.
std::string two(const std::string& links, const std::string& more = "") {
  return R"({"gpus": [{"label": "GPU0"}, {"label": "GPU1"}], "links": )" + links + more + "}";
}
const std::string kLinks = R"([["X", "PIX"], ["PIX", "X"]])";

}  // namespace

TEST_CASE("a topology's JSON reads back equal, measurements too") {
  for (const auto& fixture : test::all_topology_fixtures()) {
    INFO(fixture.name);
    Topology topology = fixture.topology;
    if (topology.gpus.size() > 1) topology.links[0][1].p2p = topology.links[1][0].p2p = false;
    topology.gpus[0].pcie_width = 8;
    topology.gpus[0].nvswitch = true;
    topology.notes = {"a note"};
    const LinkModel model(topology, test::measured_of(fixture));
    const std::vector<Selection> best = {best_set(model, all_gpus(topology), 1)};
    const Json json = topology_json(topology, model.measured(), best);
    const SavedTopology again = parse(json.dump(2));
    CHECK(again.topology.links == topology.links);
    CHECK(topology_json(again.topology, again.measured, best).dump() == json.dump());
  }
}

TEST_CASE("an empty machine is read") {
  const SavedTopology none = parse(read_file(test::topology_folder() / "none.json"));
  CHECK(none.topology.gpus.empty());
  CHECK(none.measured.empty());
}

TEST_CASE("text and JSON are told apart by their first character") {
  CHECK(parse("\n " + two(kLinks)).topology.gpus.size() == 2);
  CHECK(parse("  GPU0\nGPU0 X\n").topology.gpus.size() == 1);
}

TEST_CASE("a best set names its GPUs, its figure and where that is from") {
  const auto fixture = test::topology_fixture("four_3090_two_pix_pairs");
  const LinkModel model(fixture.topology);
  const Json json = topology_json(fixture.topology, {}, best_sets(model, all_gpus(fixture.topology)));
  const auto& best = json.find("best")->array();
  CHECK(best.at(0).find("all_reduce_gb_per_second")->is_null());
  CHECK(best.at(1).find("gpus")->dump() == "[0,2]");
  CHECK(best.at(1).find("source")->string() == "estimated");
  CHECK(best.at(1).find("all_reduce_gb_per_second")->number() > 0);
}

TEST_CASE("JSON that contradicts itself or isn't of the form is one error with the member's path") {
  CHECK_THAT(error_of("{"), Contains("saved.json"));
  CHECK_THAT(error_of("{}"), Contains("gpus"));
  CHECK_THAT(error_of(two(R"([["X", "PIX"]])")), Contains("links") && Contains("an array of 2"));
  CHECK_THAT(error_of(two(R"([["X", "PIX"], ["PHB", "X"]])")), Contains("the other direction, PIX"));
  CHECK_THAT(error_of(two(R"([["X", "X"], ["X", "X"]])")), Contains("X on the diagonal"));
  CHECK_THAT(error_of(two(R"([["X", "OK"], ["OK", "X"]])")), Contains("a link class"));
  CHECK_THAT(error_of(two(kLinks, R"(, "p2p": [[null, true], [false, null]])")), Contains("peer access"));
  CHECK_THAT(error_of(two(kLinks, R"(, "measured": {"pairs_gb_per_second": [[null, 0], [1, null]]})")),
             Contains("a positive number of GB/s"));
  CHECK_THAT(error_of(two(kLinks, R"(, "measured": {"sets": [{"gpus": [0, 2], "gb_per_second": 1}]})")),
             Contains("numbers of GPUs, ascending, below 2"));
  CHECK_THAT(error_of(two(kLinks, R"(, "measured": {"sets": [{"gpus": [0], "gb_per_second": 1}]})")),
             Contains("two GPUs or more"));
  CHECK_THAT(error_of(two(kLinks, R"(, "measured": {"sets": [{"gpus": [0, 1], "gb_per_second": null}]})")),
             Contains("expected a number"));
  CHECK_THAT(error_of(R"({"gpus": [{"label": "GPU 0"}], "links": [["X"]]})"),
             Contains("a name without blanks"));
  CHECK_THAT(error_of(R"({"gpus": [{"label": "GPU0", "pcie_width": 0}], "links": [["X"]]})"),
             Contains("a number from 1 to 32"));
}
