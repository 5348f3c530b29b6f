// Any bytes as a tokenizer.model: what our own check accepts, the sentencepiece library (which isn't
// instrumented, and is older than its hardening) reads and uses without harm.
#include "fuzz.h"
#include "text/sentencepiece_tokenizer.h"
#include "try_tokenizer.h"

using namespace lorikeet;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto tokenizer = fuzz::accepted([&] {
    return text::make_sentencepiece_tokenizer(fuzz::view(data, size), {}, "input", "a tokenizer", "none");
  });
  if (tokenizer) fuzz::try_tokenizer(**tokenizer);
  return 0;
}
