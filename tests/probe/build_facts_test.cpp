#include "probe/build_facts.h"

#include "support/catch.h"

using namespace lorikeet::probe;

TEST_CASE("machine code runs on its major version from its minor one up") {
  CHECK(runs_on("80-real", 8, 0));
  CHECK(runs_on("80-real", 8, 9));
  CHECK_FALSE(runs_on("86-real", 8, 0));
  CHECK_FALSE(runs_on("80-real", 9, 0));
  CHECK_FALSE(runs_on("80-real", 7, 5));
}

TEST_CASE("code for one architecture alone runs on no other") {
  CHECK(runs_on("90a-real", 9, 0));
  CHECK_FALSE(runs_on("90a", 10, 0));
  CHECK_FALSE(runs_on("100a-real", 10, 3));
  CHECK(runs_on("100f-real", 10, 3));
  CHECK_FALSE(runs_on("100f", 12, 0));
}

TEST_CASE("PTX runs on everything later") {
  CHECK(runs_on("80", 12, 0));
  CHECK(runs_on("80-virtual", 9, 0));
  CHECK_FALSE(runs_on("80-virtual", 7, 5));
}

TEST_CASE("what is no architecture runs nowhere") {
  for (const char* text : {"", "a", "native", "-real", "8", "80-other"}) CHECK_FALSE(runs_on(text, 8, 0));
}

TEST_CASE("a version is told as people write it") {
  CHECK(cuda_version_text(13000) == "13.0");
  CHECK(cuda_version_text(12080) == "12.8");
}

TEST_CASE("a build with CUDA knows its version and its architectures, one without neither") {
  const BuildFacts facts = build_facts();
  CHECK((facts.cuda == 0) == facts.architectures.empty());
  if (facts.cuda != 0) CHECK(facts.cuda >= 12000);
}
