// Any bytes as an Arrow file or stream: it is refused, or its rows are read.
#include <algorithm>
#include <memory>

#include "data/columnar/arrow_file.h"
#include "fuzz.h"

using namespace lorikeet;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::accepted([&] {
    const data::columnar::ArrowFile file(data::FileBytes(std::string(fuzz::view(data, size)), "input"),
                                         std::make_shared<data::columnar::ChunkCache>());
    for (std::size_t i = 0; i < std::min<std::size_t>(file.size(), 50); ++i)
      fuzz::require(file.parse(i).is_object());
    return 0;
  });
  return 0;
}
