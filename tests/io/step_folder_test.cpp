#include "io/step_folder.h"

#include <limits>

#include "support/catch.h"

using namespace lorikeet::io;

TEST_CASE("the name of a step's folder gives the step back") {
  CHECK(step_folder_name(12) == "step_12");
  for (const std::int64_t step :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{10}, std::numeric_limits<std::int64_t>::max()}) {
    CHECK(step_of_folder(step_folder_name(step)) == step);
  }
}

TEST_CASE("no other name is a step's, such as those of copies") {
  for (const char* name :
       {"step_", "step_04", "step_00", "step_-5", "step_-0", "step_+5", "step_ 5", "step_5 ", "step_5x",
        "step_x", "steps_5", "step5", "Step_5", "5", "", "step_9223372036854775808"}) {
    INFO(name);
    CHECK_FALSE(step_of_folder(name));
  }
}
