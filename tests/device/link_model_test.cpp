#include "device/link_model.h"

#include <limits>

#include "device/fixtures.h"
#include "device/ring.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::device;
using Catch::Contains;
using test::topology_fixture;

namespace {

// Sixteen lanes of generation 4, of which copies reach four fifths.
constexpr double kPcie4 = 16 * 1.969 * 0.8;

double prior(const char* fixture, const GpuSet& set) {
  return LinkModel(topology_fixture(fixture).topology).prior(set);
}

Topology pair_of(LinkKind kind, const char* model = nullptr, std::optional<bool> p2p = {}) {
  Topology topology;
  topology.gpus = {{.label = "GPU0"}, {.label = "GPU1"}};
  if (model != nullptr) topology.gpus[0].model = topology.gpus[1].model = model;
  const Link self{LinkKind::kSelf, 0, {}}, link{kind, kind == LinkKind::kNvLink ? 4 : 0, p2p};
  topology.links = {{self, link}, {link, self}};
  return topology;
}

double pair_prior(const Topology& topology) { return LinkModel(topology).prior({0, 1}); }

}  // namespace

TEST_CASE("with peer access nearer is faster, and unknown counts as farthest") {
  double before = std::numeric_limits<double>::infinity();
  for (const LinkKind kind :
       {LinkKind::kNvLink, LinkKind::kPix, LinkKind::kPxb, LinkKind::kPhb, LinkKind::kNode, LinkKind::kSys}) {
    const double rate = pair_prior(pair_of(kind));
    CHECK(rate < before);
    before = rate;
  }
  CHECK(pair_prior(pair_of(LinkKind::kUnknown)) == before);
  CHECK(pair_prior(pair_of(LinkKind::kPix)) == Approx(kPcie4));
}

TEST_CASE(
    "GeForce cards have no peer access unless the driver says so, and then a PIX pair is the slower one") {
  const char* geforce = "NVIDIA GeForce RTX 4090";
  const double pix = pair_prior(pair_of(LinkKind::kPix, geforce)),
               node = pair_prior(pair_of(LinkKind::kNode, geforce));
  CHECK(pix == Approx(kPcie4 / 4));  // half through memory, and half of that for each on the shared uplink
  CHECK(node == Approx(kPcie4 / 2));
  CHECK(pair_prior(pair_of(LinkKind::kPix, geforce, true)) == Approx(kPcie4));
  CHECK(pair_prior(pair_of(LinkKind::kPix, "NVIDIA L40S", false)) == Approx(pix));
  CHECK(pair_prior(pair_of(LinkKind::kPxb, geforce)) == Approx(pix));
  CHECK(pair_prior(pair_of(LinkKind::kNvLink, geforce)) == Approx(4 * 25 * 0.8));
}

TEST_CASE("an NVLink's rate is the driver's, else the model's, else that of most") {
  Topology topology = pair_of(LinkKind::kNvLink, "NVIDIA RTX A6000");
  CHECK(pair_prior(topology) == Approx(4 * 14.0625 * 0.8));
  topology.gpus[0].nvlink_gb_per_second = topology.gpus[1].nvlink_gb_per_second = 50;
  CHECK(pair_prior(topology) == Approx(4 * 50 * 0.8));
  CHECK(pair_prior(pair_of(LinkKind::kNvLink)) == Approx(4 * 25 * 0.8));
}

TEST_CASE("PCIe goes by lanes now and the largest generation, the slower card's") {
  Topology topology = pair_of(LinkKind::kPix);
  topology.gpus[0].pcie_width = 4;
  CHECK(pair_prior(topology) == Approx(kPcie4 / 4));
  topology.gpus[1].pcie_generation = 3;
  CHECK(pair_prior(topology) == Approx(kPcie4 / 4));
  topology.gpus[0].pcie_generation = 3;
  CHECK(pair_prior(topology) == Approx(4 * 0.985 * 0.8));
}

TEST_CASE("a mesh of NVLinks is as fast as its smallest cut, a switch as what each card has") {
  CHECK(prior("dgx1_cube_mesh", {0, 3}) == Approx(2 * 25 * 0.8));
  CHECK(prior("dgx1_cube_mesh", {0, 1, 2, 3}) == Approx(4 * 25 * 0.8));
  CHECK(prior("dgx1_cube_mesh", {0, 1, 2, 3, 4, 5, 6, 7}) == Approx(6 * 25 * 0.8));
  CHECK(prior("dgx1_cube_mesh", {0, 1, 4, 5}) == Approx(2 * 25 * 0.8));
  CHECK(prior("dgx1_cube_mesh", {0, 5}) == Approx(0.5 * kPcie4));  // no NVLink between them
  CHECK(prior("nv4_mesh_scrambled_numa", {0, 1, 2, 3}) == Approx(12 * 25 * 0.8));
  CHECK(prior("nvswitch_8_nics", {0, 5}) == Approx(18 * 25 * 0.8));
  CHECK(prior("nvswitch_8_nics", {0, 1, 2, 3, 4, 5, 6, 7}) == Approx(18 * 25 * 0.8));
  CHECK(prior("sixteen_behind_switch", {3, 9, 12}) == Approx(6 * 25 * 0.8));
}

TEST_CASE("a ring over several islands is as fast as the weakest hop that it can't avoid") {
  CHECK(prior("bridged_pairs_0_1", {0, 1, 2, 3}) == Approx(0.7 * kPcie4));
  CHECK(prior("pix_pairs_two_sockets", {0, 1, 2}) == Approx(0.7 * kPcie4));
  CHECK(prior("pix_pairs_two_sockets", {0, 1, 4, 5}) == Approx(0.5 * kPcie4));
  CHECK(prior("geforce_pairs_two_sockets", {0, 2, 4, 6}) == Approx(0.4 * kPcie4));
  CHECK(prior("geforce_pairs_two_sockets", {0, 1, 2, 4}) == Approx(0.25 * kPcie4));
  CHECK(prior("bridged_pairs_0_2", {0, 1, 2, 3}) ==
        Approx(0.5 * kPcie4));  // each bridged pair has one hop out
}

TEST_CASE("a measured set overrules measured pairs, and those overrule the label") {
  const auto fixture = topology_fixture("four_cards_measured_against_label");
  Measurements measured = test::measured_of(fixture);
  const LinkModel by_pairs(fixture.topology, measured);
  CHECK(by_pairs.all_reduce({0, 1}).gb_per_second == 6);
  CHECK(by_pairs.all_reduce({0, 2}).gb_per_second == 10);
  CHECK(by_pairs.all_reduce({0, 1, 2, 3}).gb_per_second == 10);  // the ring 0-2-1-3 avoids both slow pairs
  CHECK(by_pairs.all_reduce({0, 1}).source == FigureSource::kMeasuredPairs);
  CHECK(by_pairs.prior({0, 1}) > by_pairs.prior({0, 2}));

  measured.sets = {{{0, 1, 2, 3}, 4.5}};
  const LinkModel by_set(fixture.topology, measured);
  CHECK(by_set.all_reduce({0, 1, 2, 3}).gb_per_second == 4.5);
  CHECK(by_set.all_reduce({0, 1, 2, 3}).source == FigureSource::kMeasuredSet);

  measured.pairs[0][1].reset();  // a set with a pair that wasn't measured goes by its labels
  CHECK(LinkModel(fixture.topology, measured).all_reduce({0, 1}).source == FigureSource::kPrior);
}

TEST_CASE("measurements that can't be are refused") {
  const Topology two = pair_of(LinkKind::kPix);
  const auto error = [&](const Measurements& measured) {
    return test::error_text([&] { LinkModel(two, measured); });
  };
  CHECK_THAT(error({{{std::nullopt}}, {}}), Contains("expected 2 rows, got 1"));
  CHECK_THAT(error({{{1, 1, 1}, {1, 1, 1}}, {}}), Contains("rows of 2, got one of 3"));
  CHECK_THAT(error({{{1, -1}, {1, 1}}, {}}), Contains("positive number"));
  CHECK_THAT(error({{}, {{{0, 2}, 1}}}), Contains("expected two or more of the machine's 2 GPUs"));
  CHECK_THAT(error({{}, {{{1, 0}, 1}}}), Contains("ascending"));
  CHECK_THAT(error({{}, {{{0, 1}, std::numeric_limits<double>::quiet_NaN()}}}), Contains("positive number"));
}

TEST_CASE("the smallest cut of a graph") {
  CHECK(min_cut({}) == 0);
  CHECK(min_cut({{0, 3}, {3, 0}}) == 3);
  CHECK(min_cut({{0, 1, 0}, {1, 0, 1}, {0, 1, 0}}) == 1);
  CHECK(min_cut({{0, 5, 0, 0}, {5, 0, 0, 0}, {0, 0, 0, 5}, {0, 0, 5, 0}}) == 0);
  // Two triangles of 4 joined by two edges of 1: the cut is between them, not at a node.
  Matrix graph(6, std::vector<double>(6, 0));
  const auto edge = [&](std::size_t a, std::size_t b, double capacity) {
    graph[a][b] = graph[b][a] = capacity;
  };
  edge(0, 1, 4), edge(1, 2, 4), edge(0, 2, 4), edge(3, 4, 4), edge(4, 5, 4), edge(3, 5, 4);
  edge(0, 3, 1), edge(1, 4, 1);
  CHECK(min_cut(graph) == 2);
}

TEST_CASE("the best ring of every subset is what trying all orders finds") {
  constexpr std::size_t kNodes = 6;
  Matrix rate(kNodes, std::vector<double>(kNodes));
  for (std::size_t i = 0; i < kNodes; ++i) {
    for (std::size_t j = 0; j < kNodes; ++j)
      rate[i][j] = static_cast<double>((i * 31 + j * 17 + i * j * 7) % 23);
  }
  const BestRings rings(rate);
  for (std::uint32_t set = 1; set < 1U << kNodes; ++set) {
    GpuSet order;
    for (std::size_t i = 0; i < kNodes; ++i) {
      if ((set >> i & 1) != 0) order.push_back(i);
    }
    if (order.size() < 2) continue;
    double best = 0;
    do {
      double slowest = std::numeric_limits<double>::infinity();
      for (std::size_t i = 0; i < order.size(); ++i)
        slowest = std::min(slowest, rate[order[i]][order[(i + 1) % order.size()]]);
      best = std::max(best, slowest);
    } while (std::next_permutation(order.begin(), order.end()));
    CHECK(rings.slowest_hop(set) == best);
  }
}
