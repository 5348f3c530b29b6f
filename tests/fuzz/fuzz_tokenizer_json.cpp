// Any bytes as a tokenizer.json: what is accepted encodes and decodes text.
#include "base/json.h"
#include "fuzz.h"
#include "text/tokenizer_json.h"
#include "try_tokenizer.h"

using namespace lorikeet;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto tokenizer = fuzz::accepted([&] {
    const Json json = Json::parse(fuzz::view(data, size), "input");
    return text::make_tokenizer_json(json, {}, "input", "a tokenizer", "none");
  });
  if (tokenizer) fuzz::try_tokenizer(**tokenizer);
  return 0;
}
