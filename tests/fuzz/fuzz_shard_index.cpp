// Any bytes as model.safetensors.index.json: of what is accepted, no file name leads out of its folder.
#include "fuzz.h"
#include "io/shard_index.h"

using namespace lorikeet;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto index = fuzz::accepted([&] { return io::parse_shard_index(fuzz::view(data, size), "input"); });
  if (!index) return 0;
  for (const std::string& shard : index->shards()) {
    fuzz::require(shard.find('/') == std::string::npos && shard.find('\0') == std::string::npos);
    fuzz::require(!shard.empty() && shard.front() != '.');
  }
  return 0;
}
