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

TEST_CASE("another card with a name that begins or ends alike isn't taken for one") {
  for (const char* name :
       {"NVIDIA RTX A4000", "NVIDIA RTX A400", "NVIDIA RTX A1000", "NVIDIA T400 4GB", "NVIDIA GB200",
        "NVIDIA GeForce RTX 3090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 5070 Ti",
        "NVIDIA GeForce RTX 2080 SUPER", "NVIDIA GeForce RTX 3080 Ti Laptop GPU"}) {
    INFO(name);
    CHECK(find_data_sheet(name) == nullptr);
  }
  CHECK(find_data_sheet("NVIDIA GH200 480GB")->memory_mib == 97871);
  CHECK(find_data_sheet("NVIDIA GeForce RTX 3080 Ti")->memory_mib == 12288);
  CHECK(find_data_sheet("NVIDIA GeForce RTX 4080 SUPER")->name == "RTX 4080 SUPER");
  CHECK(find_data_sheet("NVIDIA RTX 6000 Ada Generation")->name == "RTX 6000 Ada");
}

TEST_CASE("a slice of a card has no data sheet") {
  CHECK(find_data_sheet("NVIDIA A100-SXM4-80GB MIG 1g.10gb") == nullptr);
}

TEST_CASE("every card is found by its own name, so longer names stand first") {
  for (const device::DataSheet& sheet : device::data_sheets()) CHECK(find_data_sheet(sheet.name) == &sheet);
}

TEST_CASE("a part of a name that one card alone has is that card") {
  CHECK(device::require_data_sheet("4090").name == "RTX 4090");
  CHECK(device::require_data_sheet("3090").name == "RTX 3090");
  CHECK(device::require_data_sheet("3090 Ti").name == "RTX 3090 Ti");
  CHECK(device::require_data_sheet("6000 ada").name == "RTX 6000 Ada");
  CHECK(device::require_data_sheet("rtx4090").name == "RTX 4090");
  CHECK(device::require_data_sheet("RTX3090Ti").name == "RTX 3090 Ti");
  for (const char* of_none_or_several : {"", "4090 D", "RTX", "RTX 6000", "6000", "PCIe", "409"})
    CHECK_THROWS_WITH(device::require_data_sheet(of_none_or_several), Contains("no data sheet"));
}

TEST_CASE("a card without a data sheet is an error with those there are") {
  const std::string text = test::error_text([] { device::require_data_sheet("RTX 3099"); });
  CHECK_THAT(text, Contains("did you mean 'RTX 3090'") && Contains("B200") && Contains("--device-memory"));
}
