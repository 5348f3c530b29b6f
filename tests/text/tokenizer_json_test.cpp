#include "text/tokenizer_json.h"

#include "support/catch.h"
#include "support/paths.h"

TEST_CASE("the real tokenizers load and round-trip plain text") {
  const auto folder = lorikeet::test::shared_data("tokenizers/llama2");
  if (!folder) {
    WARN("shared data is not there");
    return;
  }
  const auto tokenizer = lorikeet::text::load_tokenizer(*folder);
  CHECK(tokenizer->encode("Hello world") == std::vector<lorikeet::text::TokenId>{1, 15043, 3186});
}
