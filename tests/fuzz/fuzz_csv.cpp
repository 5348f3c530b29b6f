// Any bytes as a CSV file: of what is accepted, every row has the same columns.
#include "data/csv_file.h"
#include "fuzz.h"

using namespace lorikeet;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::accepted([&] {
    const data::CsvFile file(data::FileBytes(std::string(fuzz::view(data, size)), "input"), ',');
    const std::size_t columns = file.parse(0).object().size();
    for (std::size_t i = 0; i < file.size(); ++i) fuzz::require(file.parse(i).object().size() == columns);
    return 0;
  });
  return 0;
}
