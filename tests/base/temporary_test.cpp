#include "base/temporary.h"

#include <set>

#include "support/catch.h"

using namespace lorikeet;

TEST_CASE("temporary names lie beside their target, never recur and say what they are for") {
  std::set<std::string> names;
  for (int i = 0; i < 1000; ++i) {
    const std::filesystem::path name = temporary_beside("runs/a/run.json");
    CHECK(name.parent_path() == "runs/a");
    CHECK(temporary_target(name.filename().string()) == "run.json");
    names.insert(name.string());
  }
  CHECK(names.size() == 1000);
}

TEST_CASE("only names of that form, or of the older one with a process id, are temporary") {
  CHECK(temporary_target("run.json.tmp-00ffab1234567890") == "run.json");
  CHECK(temporary_target("step_3.tmp-4711") == "step_3");
  CHECK(temporary_target("a.tmp-1.tmp-2") == "a.tmp-1");
  for (const char* name : {"run.json", ".tmp-12", "a.tmp-", "a.tmp-x", "a.tmp-00FFAB1234567890",
                           "a.tmp-12345678901", "a.tmp-00ffab123456789", "a.tmp-12-old", "tmp-12"}) {
    INFO(name);
    CHECK_FALSE(temporary_target(name));
  }
}
