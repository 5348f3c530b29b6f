#include "device/data_sheet.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using Catch::Contains;
using device::find_data_sheet;
using device::require_data_sheet;

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

TEST_CASE("every card is found by its own name") {
  for (const device::DataSheet& sheet : device::data_sheets()) {
    CHECK(find_data_sheet(sheet.name) == &sheet);
    CHECK(&require_data_sheet(std::string(sheet.name)) == &sheet);
  }
}

TEST_CASE("a driver's name leads to the variant of its form and memory") {
  using Names = std::vector<std::pair<const char*, const char*>>;
  for (const auto& [driver_name, card] : Names{{"NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"},
                                               {"NVIDIA A100-SXM4-80GB", "A100"},
                                               {"NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"},
                                               {"NVIDIA A100 80GB PCIe", "A100 80GB PCIe"},
                                               {"A100-SXM-80GB", "A100"},
                                               {"NVIDIA A800 80GB PCIe", "A800 80GB PCIe"},
                                               {"NVIDIA H100 PCIe", "H100 PCIe"},
                                               {"NVIDIA H100 80GB HBM3", "H100"},
                                               {"NVIDIA H100 NVL", "H100 NVL"},
                                               {"NVIDIA H200", "H200"},
                                               {"NVIDIA H200 NVL", "H200 NVL"},
                                               {"NVIDIA GeForce RTX 3080", "RTX 3080"},
                                               {"Tesla T4", "T4"}}) {
    INFO(driver_name);
    REQUIRE(find_data_sheet(driver_name) != nullptr);
    CHECK(find_data_sheet(driver_name)->name == card);
    CHECK(require_data_sheet(driver_name).name == card);
  }
}

TEST_CASE("variants of one name are distinguished by the memory that the driver gives") {
  CHECK(find_data_sheet("NVIDIA GeForce RTX 3080", std::uint64_t{12} << 30)->name == "RTX 3080 12GB");
  CHECK(find_data_sheet("NVIDIA GeForce RTX 3080", std::uint64_t{10} << 30)->name == "RTX 3080");
}

TEST_CASE("a variant that isn't known is taken for the one of its form with the nearest memory") {
  CHECK(find_data_sheet("NVIDIA A100-SXM-64GB")->name == "A100");
  CHECK(find_data_sheet("NVIDIA A100-PCIE-48GB")->name == "A100-PCIE-40GB");
  CHECK(find_data_sheet("NVIDIA H100 CNX", std::uint64_t{80} << 30)->name == "H100");
}

TEST_CASE("a form and a size that a person names have to be the card's") {
  using Names = std::vector<std::pair<const char*, const char*>>;
  for (const auto& [written, card] : Names{{"A100", "A100"},
                                           {"A100 80GB", "A100"},
                                           {"A100 40GB", "A100-SXM4-40GB"},
                                           {"a100 40 gb", "A100-SXM4-40GB"},
                                           {"A100-40GB", "A100-SXM4-40GB"},
                                           {"A100 PCIe 40GB", "A100-PCIE-40GB"},
                                           {"A100 PCIE", "A100 80GB PCIe"},
                                           {"H100-PCIe", "H100 PCIe"},
                                           {"H100 94GB", "H100 NVL"},
                                           {"H100 SXM5", "H100"},
                                           {"GH200 96GB", "GH200 480GB"},
                                           {"RTX 3080 12GB", "RTX 3080 12GB"},
                                           {"3080-12GB", "RTX 3080 12GB"},
                                           {"rtx3080 10 GB", "RTX 3080"},
                                           {"A10 24GB", "A10"},
                                           {"T4 PCIe 16GB", "T4"}}) {
    INFO(written);
    CHECK(require_data_sheet(written).name == card);
  }
  CHECK_THROWS_WITH(require_data_sheet("A100 48GB"),
                    Contains("A100 (SXM, 80.0 GiB), A100-SXM4-40GB (SXM, 40.0 GiB)") &&
                        Contains("A100-PCIE-40GB (PCIe, 40.0 GiB), got 'A100 48GB'; name one of these"));
  for (const char* of_no_variant : {"A100 NVL", "A100 0GB", "H100 PCIe 94GB", "RTX 4090 48GB", "T4 SXM"})
    CHECK_THROWS_WITH(require_data_sheet(of_no_variant), Contains("expected one of"));
}

TEST_CASE("a part of a name that one card alone has is that card") {
  CHECK(require_data_sheet("4090").name == "RTX 4090");
  CHECK(require_data_sheet("3090").name == "RTX 3090");
  CHECK(require_data_sheet("3090 Ti").name == "RTX 3090 Ti");
  CHECK(require_data_sheet("6000 ada").name == "RTX 6000 Ada");
  CHECK(require_data_sheet("rtx4090").name == "RTX 4090");
  CHECK(require_data_sheet("RTX3090Ti").name == "RTX 3090 Ti");
  for (const char* of_none_or_several :
       {"", "4090 D", "RTX", "RTX 6000", "6000", "PCIe", "40GB", "409", "H100 CNX", "A100 MIG 1g.10gb"})
    CHECK_THROWS_WITH(require_data_sheet(of_none_or_several), Contains("no data sheet"));
}

TEST_CASE("a card without a data sheet is an error with those there are") {
  const std::string text = test::error_text([] { require_data_sheet("RTX 3099"); });
  CHECK_THAT(text, Contains("did you mean 'RTX 3090'") && Contains("B200") && Contains("--device-memory"));
}
