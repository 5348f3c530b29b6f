// Any bytes as JSON: what is accepted is written in a form that is accepted again and gives the same text.
#include "base/json.h"
#include "fuzz.h"

using namespace lorikeet;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = fuzz::accepted([&] { return Json::parse(fuzz::view(data, size), "input"); });
  if (!json) return 0;
  const std::string text = json->dump();
  fuzz::require(Json::parse(text, "dump").dump() == text);
  fuzz::require(Json::parse(json->dump(2), "indented").dump() == text);
  return 0;
}
