#include "bench/comparable.h"

#include "bench/made_up_runs.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::bench;
using Catch::Matchers::Contains;
using test::error_text;
using test::made_up_run;

TEST_CASE("runs on other devices, with other threads and strategies are comparable") {
  RunRecord other = made_up_run(2, 100);
  other.devices = {"cuda:0 (A)", "cuda:1 (A)"};
  other.threads = 8;
  other.strategy = "shard";
  other.settings = "model: {path: m}\ndistributed: {strategy: shard}\ncheckpoint: {output_dir: elsewhere}";
  CHECK(differences(made_up_run(1, 100), other).empty());
}

TEST_CASE("the same files at another place are the same work") {
  RunRecord other = made_up_run(1, 100);
  other.settings = "model: {path: elsewhere/m}\ndata: {train: {path: elsewhere/rows.jsonl}}";
  CHECK(differences(made_up_run(1, 100), other).empty());
}

TEST_CASE("everything that changes the work is named") {
  const RunRecord run = made_up_run(1, 100);
  const std::pair<std::string RunRecord::*, const char*> parts[] = {
      {&RunRecord::version, "program version: 0.1.0 and x"},
      {&RunRecord::code, "code: c0de and x"},
      {&RunRecord::libtorch, "libtorch: 2.11.0 and x"},
      {&RunRecord::model, "base model: m0del and x"},
      {&RunRecord::data, "data: da7a and x"},
      {&RunRecord::policy, "precision policy: bf16 and x"}};
  for (const auto& [member, text] : parts) {
    RunRecord other = run;
    other.*member = "x";
    CHECK(differences(run, other) == std::vector<std::string>{text});
  }
  RunRecord other = run;
  other.settings = "model: {path: m}\nbatch: {global: 8}\nlora: {rank: 4}";
  CHECK(differences(run, other) == std::vector<std::string>{"lora.rank: 16 and 4", "batch.global: 32 and 8"});
}

TEST_CASE("fingerprints of other versions of the program are compared by what both have") {
  RunRecord older = made_up_run(1, 100), newer = older;
  older.model = "abc";
  newer.model = "v1:abc v2:123";
  CHECK(differences(older, newer).empty());
  RunRecord changed = newer;
  changed.model = "v1:abc v2:456";
  CHECK(differences(newer, changed) == std::vector<std::string>{"base model: 123 and 456"});
  changed.model = "v3:456";
  CHECK(differences(older, changed) == std::vector<std::string>{"base model: abc and v3:456"});
}

TEST_CASE("one run that differs among many is named with all its differences") {
  RunRecord other = made_up_run(4, 100);
  other.data = "x";
  other.code = "y";
  const RunRecord one = made_up_run(1, 100), two = made_up_run(2, 100);
  CHECK_THAT(error_text([&] { require_comparable({&one, &two, &other}); }),
             Contains("1 devices and 4 devices did different work") &&
                 Contains("code: c0de and y; data: da7a and x"));
  CHECK_NOTHROW(require_comparable({&one, &two}));
}
