#include "trace/step_trace.h"

#include <ATen/ATen.h>

#include <optional>

#include "base/file.h"
#include "base/json.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/paths.h"
#include "trace/range.h"

using namespace lorikeet;
using namespace lorikeet::trace;
using Catch::Matchers::Contains;

namespace {

constexpr double kRounding = 0.01;  // us; times are written in ns

struct Event {
  double begin, end;  // us
  Json args;

  bool within(const Event& other) const {
    return begin >= other.begin - kRounding && end <= other.end + kRounding;
  }
};

// The only event of this name.
std::optional<Event> find(const Json& trace, const std::string& name) {
  std::optional<Event> found;
  for (const JsonView& event : JsonView(trace, "trace").at("traceEvents").items()) {
    if (event.get_string("ph", "") != "X" || event.at("name").as_string() != name) continue;
    REQUIRE_FALSE(found);
    const double begin = event.at("ts").as_number();
    found = Event{begin, begin + event.at("dur").as_number(), event.at("args").json()};
  }
  return found;
}

Json read(const std::filesystem::path& path) { return Json::parse(read_file(path), path.string()); }

}  // namespace

TEST_CASE("a trace holds ranges with their figures, and operators inside them") {
  const test::TemporaryFolder folder;
  StepTrace trace(/*cuda=*/false);
  at::Tensor product;
  {
    const Range step("step", {{"step", 3}});
    const Range forward("forward", {{"tokens", 4096}, {"bytes", std::int64_t{1} << 40}});
    product = at::ones({8, 8}).matmul(at::ones({8, 8}));
  }
  trace.save(folder / "trace.json");
  const Json json = read(folder / "trace.json");
  const auto step = find(json, "step"), forward = find(json, "forward"), matmul = find(json, "aten::matmul");
  REQUIRE((step && forward && matmul));
  CHECK(JsonView(step->args, "step").at("step").as_int() == 3);
  CHECK(JsonView(forward->args, "forward").at("tokens").as_int() == 4096);
  CHECK(JsonView(forward->args, "forward").at("bytes").as_int() == std::int64_t{1} << 40);
  CHECK(forward->within(*step));
  CHECK(matmul->within(*forward));
  CHECK_FALSE(forward->within(*matmul));
}

TEST_CASE("what comes before and behind a trace isn't in it") {
  const test::TemporaryFolder folder;
  { const Range before("before"); }
  StepTrace trace(/*cuda=*/false);
  { const Range during("during"); }
  trace.save(folder / "trace.json");
  { const Range behind("behind"); }
  const Json json = read(folder / "trace.json");
  CHECK(find(json, "during"));
  CHECK_FALSE(find(json, "before"));
  CHECK_FALSE(find(json, "behind"));
}

TEST_CASE("one that is dropped leaves no file and doesn't keep others from recording") {
  const test::TemporaryFolder folder;
  { const StepTrace dropped(/*cuda=*/false); }
  CHECK(std::filesystem::is_empty(folder.path()));
  StepTrace trace(/*cuda=*/false);
  { const Range range("range"); }
  trace.save(folder / "trace.json");
  CHECK(find(read(folder / "trace.json"), "range"));
}

TEST_CASE("a trace that can't be written is an error that names the file") {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder / "absent/trace.json";
  StepTrace trace(/*cuda=*/false);
  CHECK_THAT(test::error_text([&] { trace.save(path); }, ErrorKind::kEnvironment),
             Contains("can't write '" + path.string() + "'"));
}
