#include "bench/report.h"

#include "base/strings.h"
#include "bench/made_up_runs.h"
#include "support/catch.h"

using namespace lorikeet;
using namespace lorikeet::bench;
using Catch::Matchers::Contains;
using test::made_up_group;

namespace {

Report report() {
  Group four{"4 devices", 4, {{.exit_code = 1, .error = "out of memory"}}};
  Report r{.title = "One and several",
           .command = "lorikeet bench scaling run.yaml",
           .facts = {"Date: today."},
           .warmup_steps = 1,
           .groups = {made_up_group(1, {100, 110, 90}), made_up_group(2, {180, 190, 170}), four},
           .verdict = "Train on two."};
  r.evaluation = evaluate(r.groups, r.warmup_steps);
  return r;
}

}  // namespace

TEST_CASE("the text has a line a group, aligned, then notes and the verdict") {
  const std::string text = report_text(report());
  const std::vector<std::string> lines = split(text, '\n');
  CHECK_THAT(lines[1], Contains("1 device   3     100 (90 to 110)"));
  CHECK_THAT(lines[2], Contains("2 devices  3     180 (170 to 190)  90 (85 to 95)"));
  CHECK_THAT(lines[2], Contains("20.0%") && Contains("1.0 GiB") && Contains("1 (2)"));
  CHECK_THAT(lines[3], Contains("4 devices  0     -"));
  CHECK(lines[0].find("speed-up") == lines[2].find("1.80x"));
  CHECK_THAT(text, Contains("2 devices: 2 x cpu (fake), replicate\n"));
  CHECK_THAT(text, Contains("4 devices, round 1: exit code 1: out of memory\n"));
  CHECK_THAT(text, Contains("\n\nTrain on two.\n"));
}

TEST_CASE("the Markdown is a table of the same cells, with command and facts") {
  const std::string text = report_markdown(report());
  CHECK_THAT(text,
             Contains("# One and several\n\nCommand: `lorikeet bench scaling run.yaml`.\nDate: today.\n"));
  CHECK_THAT(text, Contains("| 2 devices | 3 | 180 (170 to 190) | 90 (85 to 95) | 1.80x"));
  CHECK_THAT(text, Contains("**Train on two.**"));
  for (const std::string& line : split(text, '\n')) {
    if (line.starts_with('|')) CHECK(split(line, '|').size() == 13);
  }
}

TEST_CASE("the JSON reads back, with every run's rate and null for what isn't known") {
  const Json json = Json::parse(report_json(report()).dump(2), "report");
  const JsonView view(json, "report");
  CHECK(view.at("base").as_string() == "1 device");
  CHECK(view.at("facts").items()[0].as_string() == "Date: today.");
  const auto rows = view.at("rows").items();
  REQUIRE(rows.size() == 3);
  CHECK(rows[1].at("tokens_per_second").at("median").as_number() == Approx(180));
  CHECK(rows[1].at("runs").items()[2].at("tokens_per_second").as_number() == Approx(170));
  CHECK(rows[1].at("device_names").items().size() == 2);
  CHECK(rows[2].at("tokens_per_second").json().is_null());
  CHECK(rows[2].at("runs").items()[0].at("error").as_string() == "out of memory");
  CHECK(view.at("verdict").as_string() == "Train on two.");
}
