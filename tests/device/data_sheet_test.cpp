#include "device/data_sheet.h"

#include <algorithm>

#include "base/error.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using Catch::Contains;
using device::find_data_sheet;

TEST_CASE("a card is found by the driver's name and as people write it") {
  CHECK(find_data_sheet("NVIDIA GeForce RTX 3090")->name == "RTX 3090");
  CHECK(find_data_sheet("rtx 3090")->name == "RTX 3090");
  CHECK(find_data_sheet("NVIDIA A100-SXM4-40GB")->memory_mib == 40960);
  CHECK(find_data_sheet("NVIDIA H100 PCIe")->nvlinks == 0);
  CHECK(find_data_sheet("NVIDIA H100 80GB HBM3")->nvlinks == 18);
  CHECK(find_data_sheet("Some Card 9000") == nullptr);
}

TEST_CASE("every card is found by its own name, so longer names stand first") {
  for (const device::DataSheet& sheet : device::data_sheets()) CHECK(find_data_sheet(sheet.name) == &sheet);
}

TEST_CASE("a card without a data sheet is an error with those there are") {
  const std::string text = test::error_text([] { device::require_data_sheet("RTX 3099"); });
  CHECK_THAT(text, Contains("did you mean 'RTX 3090'") && Contains("B200") && Contains("--device-memory"));
}
