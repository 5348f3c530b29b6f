#include "data/preview.h"

#include "data_fixture.h"
#include "support/catch.h"

using namespace lorikeet;

TEST_CASE("a preview shows each token and whether it is trained on") {
  test::DataFixture data;
  data.options.chat_template = "plain";
  const data::LoadedFile loaded = data.load(R"({"prompt": "Hi\n", "completion": "yo"})");
  CHECK(data::preview_example(loaded.dataset, 0, *test::fake_tokenizer()) ==
        "example 0, line 1: 7 tokens, 3 trained on\n- <s>|H|i|\\n\n+ y|o|</s>\n");
  CHECK(data::preview_example(loaded.dataset, 0, *test::fake_tokenizer(), {.max_tokens = 2}) ==
        "example 0, line 1: 7 tokens, 3 trained on\n- <s>|H\n... and 5 tokens more\n");
}

TEST_CASE("examples of an array are found by their rows") {
  test::DataFixture data;
  const data::TokenDataset dataset = data.load(R"([{"text": "a"}, {"text": "b"}, {"text": "c"}])").dataset;
  CHECK_THAT(data::preview_example(dataset, 1, *test::fake_tokenizer()),
             Catch::StartsWith("example 1, row 2: "));
  CHECK(dataset.source_places(std::vector<std::size_t>{2, 0}) == "rows 3, 1");
  CHECK(data.load("{\"text\": \"a\"}\n{\"text\": \"b\"}\n")
            .dataset.source_places(std::vector<std::size_t>{1, 0}) == "lines 2, 1");
}

TEST_CASE("a coloured preview holds no escape sequence but its own") {
  test::DataFixture data;
  data.options.chat_template = "plain";
  const data::LoadedFile loaded = data.load(R"({"prompt": "\u001b[2J", "completion": "\u0007x"})");
  const std::string plain = data::preview_example(loaded.dataset, 0, *test::fake_tokenizer());
  CHECK_THAT(plain, Catch::Contains("\\x1b|[|2|J") && Catch::Contains("\\x07|x") && !Catch::Contains("\x1b"));
  const std::string coloured =
      data::preview_example(loaded.dataset, 0, *test::fake_tokenizer(), {.colour = true});
  CHECK_THAT(coloured, Catch::Contains("\x1b[30;4") && !Catch::Contains("\x1b[2J"));
}

TEST_CASE("tokens that aren't trained on are dimmed or plain, never of a colour that a background may have") {
  test::DataFixture data;
  data.options.chat_template = "plain";
  const data::LoadedFile loaded = data.load(R"({"prompt": "Hi", "completion": "yo"})");
  CHECK_THAT(data::preview_example(loaded.dataset, 0, *test::fake_tokenizer(), {.colour = true}),
             Catch::Contains("- \x1b[0m<s>\x1b[0m\x1b[2mH\x1b[0m\x1b[0mi\x1b[0m") &&
                 Catch::Contains("+ \x1b[30;46my\x1b[0m"));
}

TEST_CASE("a character of several tokens is shown whole at its last") {
  const auto tokenizer = test::fake_tokenizer();
  const auto ids = tokenizer->encode("a\u6771b", {.add_special_tokens = false});
  CHECK(data::token_texts(ids, *tokenizer) == std::vector<std::string>{"a", "", "", "\u6771", "b"});
  const std::vector<text::TokenId> cut{0x61, 0xE6, 0x62};
  CHECK(data::token_texts(cut, *tokenizer) == std::vector<std::string>{"a", "\uFFFD", "b"});
}
