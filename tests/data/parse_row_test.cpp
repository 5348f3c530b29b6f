#include "data/parse_row.h"

#include "base/error.h"
#include "support/catch.h"

using namespace lorikeet;
using Catch::Contains;
using data::Format;

namespace {

data::Row parse(const std::string& row, Format format, const data::Columns& columns = {}) {
  return data::parse_row(Json::parse(row, "row"), format, columns, "[data] line 1 of f");
}

std::vector<text::Message> messages(const data::Row& row) {
  return std::get<text::Conversation>(row).messages;
}

}  // namespace

TEST_CASE("columns rename a format's fields") {
  const data::Row row = parse(R"({"question": "a", "answer": "b"})", Format::kInstruct,
                              {{"prompt", "question"}, {"completion", "answer"}});
  CHECK(std::get<text::Instruction>(row).instruction == "a");
  CHECK(std::get<text::Instruction>(row).output == "b");
}

TEST_CASE("columns rename the keys inside turns too") {
  const data::Columns columns{{"messages", "dialogue"}, {"role", "speaker"}, {"content", "text"}};
  const std::string row =
      R"({"dialogue": [{"speaker": "human", "text": "a"}, {"speaker": "bot", "text": "b"}]})";
  const auto turns = messages(parse(row, Format::kChat, columns));
  REQUIRE(turns.size() == 2);
  CHECK(turns[0].role == "user");
  CHECK(turns[1].role == "assistant");
  CHECK(turns[1].content == "b");

  const data::Columns shared{{"from", "who"}, {"value", "says"}};
  const std::string spoken = R"({"conversations": [{"who": "gpt", "says": "a"}]})";
  CHECK(messages(parse(spoken, Format::kShareGpt, shared))[0].content == "a");

  // The advice of the error is what helps.
  CHECK_THROWS_WITH(parse(row, Format::kChat, {{"messages", "dialogue"}}),
                    Contains("turn 1: expected key 'role', found 'speaker', 'text'") &&
                        Contains("data.train.columns ({role: its key})"));
}

TEST_CASE("a turn's content under its usual key gives way to the column that is chosen") {
  const auto turns =
      messages(parse(R"({"messages": [{"role": "x", "who": "user", "content": "Bonjour", "en": "Hello",
      "name": "n"}]})",
                     Format::kChat, {{"content", "en"}, {"role", "who"}}));
  CHECK(turns[0].role == "user");
  CHECK(turns[0].content == "Hello");
  CHECK(turns[0].extra.dump() == R"({"name":"n"})");
}

TEST_CASE("a row's own system prompt comes before its turns") {
  const auto of = [](const std::string& row, Format format) { return messages(parse(row, format)); };
  const auto shared =
      of(R"({"system": "s", "conversations": [{"from": "human", "value": "q"}]})", Format::kShareGpt);
  REQUIRE(shared.size() == 2);
  CHECK(shared[0].role == "system");
  CHECK(shared[0].content == "s");
  for (const char* row : {R"({"system": "s", "messages": [{"role": "system", "content": "own"}]})",
                          R"({"system": " ", "messages": [{"role": "system", "content": "own"}]})",
                          R"({"system": null, "messages": [{"role": "system", "content": "own"}]})"}) {
    const auto own = of(row, Format::kChat);
    REQUIRE(own.size() == 1);
    CHECK(own[0].content == "own");
  }
  CHECK_THROWS_WITH(of(R"({"system": 1, "messages": [{"role": "user", "content": "q"}]})", Format::kChat),
                    Contains("'system' to be a string"));
}

TEST_CASE("instructions may come behind a system prompt and earlier turns") {
  const auto row =
      std::get<text::Instruction>(parse(R"({"instruction": "i", "input": "n", "output": "o", "system": "s",
      "history": [["q", "a"]]})",
                                        Format::kAlpaca));
  CHECK(row.instruction == "i");
  CHECK(row.input == "n");
  CHECK(row.output == "o");
  REQUIRE(row.earlier.size() == 3);
  CHECK(row.earlier[0].role == "system");
  CHECK(row.earlier[0].content == "s");
  CHECK(row.earlier[1].role == "user");
  CHECK(row.earlier[1].content == "q");
  CHECK(row.earlier[2].role == "assistant");
  CHECK(row.earlier[2].content == "a");
  const auto asked = std::get<text::Instruction>(
      parse(R"({"question": "q", "response": "r", "system_prompt": "s"})", Format::kInstruct,
            {{"prompt", "question"}, {"completion", "response"}, {"system", "system_prompt"}}));
  REQUIRE(asked.earlier.size() == 1);
  CHECK(asked.earlier[0].content == "s");
  for (const char* none : {R"([])", R"("")", R"(null)"}) {
    CHECK(
        std::get<text::Instruction>(parse(R"({"instruction": "i", "output": "o", "system": "", "history": )" +
                                              std::string(none) + "}",
                                          Format::kAlpaca))
            .earlier.empty());
  }
  for (const char* history : {R"("q")", R"(["q", "a"])", R"([["q"]])", R"([["q", 1]])"}) {
    CHECK_THROWS_WITH(parse(R"({"instruction": "i", "output": "o", "history": )" + std::string(history) + "}",
                            Format::kAlpaca),
                      Contains("list of pairs [question, answer]"));
  }
}

TEST_CASE("tokens that the attention mask calls padding are left out") {
  const auto row = [](const std::string& mask) {
    return std::get<data::TokensRow>(
        parse(R"({"input_ids": [0, 5, 6, 0], "labels": [-100, -100, 6, 0], "attention_mask": )" + mask + "}",
              Format::kTokens));
  };
  CHECK(row("[0, 1, 1, 0]").ids == std::vector<text::TokenId>{5, 6});
  CHECK(row("[0, 1, 1, 0]").labels == std::vector<std::int32_t>{-100, 6});
  CHECK(row("[1, 1, 1, 1]").ids.size() == 4);
  CHECK(row("null").ids.size() == 4);
  CHECK(row("[0, 0, 0, 0]").ids.empty());
  CHECK_THROWS_WITH(row("[1, 1, 1]"), Contains("as long as input_ids (4)") && Contains("a length of 3"));
  CHECK_THROWS_WITH(row("[1, 0, 1, 1]"), Contains("one run") && Contains("1 at 2"));
  CHECK_THROWS_WITH(row("[2, 1, 1, 1]"), Contains("2 at 0"));
}

TEST_CASE("alpaca's input may be absent or null") {
  for (const char* row :
       {R"({"instruction": "a", "output": "b"})", R"({"instruction": "a", "input": null, "output": "b"})"})
    CHECK(std::get<text::Instruction>(parse(row, Format::kAlpaca)).input.empty());
}

TEST_CASE("sharegpt's speakers become roles") {
  const auto turns = messages(parse(R"({"conversations": [{"from": "system", "value": "s"},
      {"from": "human", "value": "h"}, {"from": "gpt", "value": "g"}]})",
                                    Format::kShareGpt));
  REQUIRE(turns.size() == 3);
  CHECK(turns[0].role == "system");
  CHECK(turns[1].role == "user");
  CHECK(turns[2].role == "assistant");
  CHECK(turns[2].content == "g");
}

TEST_CASE("a message's content may be text parts, its weight 0 or 1") {
  const auto turns = messages(parse(R"({"messages": [
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "value": "b"}]},
      {"role": "assistant", "content": "c", "weight": 0}, {"role": "assistant", "content": "d", "loss_weight": 1.0}]})",
                                    Format::kChat));
  CHECK(turns[0].content == "ab");
  CHECK_FALSE(turns[1].trained);
  CHECK(turns[2].trained);
}

TEST_CASE("a message's train says whether it is trained on, and nothing but true or false") {
  const auto turn = [](const std::string& more) {
    return messages(
        parse(R"({"messages": [{"role": "assistant", "content": "a", )" + more + "}]}", Format::kChat))[0];
  };
  CHECK_FALSE(turn(R"("train": false)").trained);
  CHECK(turn(R"("train": true)").trained);
  CHECK(turn(R"("train": null)").trained);
  CHECK_FALSE(turn(R"("train": false, "weight": 0)").trained);
  CHECK_THROWS_WITH(turn(R"("train": "false")"),
                    Contains("turn 1") && Contains("'train' to be true or false"));
  CHECK_THROWS_WITH(turn(R"("train": 0)"), Contains("got 0"));
  CHECK_THROWS_WITH(turn(R"("train": true, "weight": 0)"), Contains("'train' and 'weight' contradict"));
  const auto shared = messages(
      parse(R"({"conversations": [{"from": "gpt", "value": "a", "train": false}]})", Format::kShareGpt));
  CHECK_FALSE(shared[0].trained);
}

TEST_CASE("rows with a verdict on their answer are preference data, in every format with answers") {
  for (const char* row : {R"({"prompt": "a", "completion": "b", "label": true})",
                          R"({"prompt": "a", "completion": "b", "label": false})"})
    CHECK_THROWS_WITH(parse(row, Format::kInstruct),
                      Contains("line 1 of f") && Contains("preference data (KTO)"));
  CHECK_THROWS_WITH(parse(R"({"instruction": "a", "output": "b", "label": false})", Format::kAlpaca),
                    Contains("KTO"));
  CHECK_THROWS_WITH(
      parse(R"({"messages": [{"role": "user", "content": "a"}], "label": false})", Format::kChat),
      Contains("KTO"));
  CHECK_NOTHROW(parse(R"({"prompt": "a", "completion": "b", "label": "news"})", Format::kInstruct));
  CHECK_NOTHROW(parse(R"({"text": "a", "label": true})", Format::kText));
}

TEST_CASE("turns that can't be trained on are errors that name the turn") {
  const auto fails = [](const std::string& turn) {
    parse(R"({"messages": [{"role": "user", "content": "a"}, )" + turn + "]}", Format::kChat);
  };
  CHECK_THROWS_WITH(fails(R"({"role": "user", "content": [{"type": "image_url", "image_url": "x"}]})"),
                    Contains("line 1 of f, turn 2") && Contains("parts of 'content'"));
  CHECK_THROWS_WITH(fails(R"({"role": "assistant", "content": null})"),
                    Contains("turn 2") && Contains("null"));
  CHECK_THROWS_WITH(fails(R"({"role": "assistant", "content": "", "function_call": {}})"),
                    Contains("turn 2") && Contains("'tool_calls'"));
  CHECK_THROWS_WITH(fails(R"({"role": "assistant", "content": "", "weight": 0.5})"), Contains("0 or 1"));
  CHECK_THROWS_WITH(fails(R"({"content": "a"})"), Contains("expected key 'role', found 'content'"));
  CHECK_THROWS_WITH(fails("3"), Contains("expected a JSON object"));
  CHECK_THROWS_WITH(parse(R"({"messages": []})", Format::kChat), Contains("an empty list"));
  CHECK_THROWS_WITH(parse(R"({"messages": "a"})", Format::kChat), Contains("got string"));
}

TEST_CASE("beside a call or reasoning, under any of its names, a message may have no content") {
  const auto turn = [](const std::string& more) {
    return messages(
        parse(R"({"messages": [{"role": "assistant", "content": null, )" + more + "}]}", Format::kChat))[0];
  };
  for (const char* more : {R"("tool_calls": [{"id": "1"}])", R"("reasoning_content": "hm")",
                           R"("thinking": "hm")", R"("reasoning": "hm")"})
    CHECK_FALSE(turn(more).has_content);
  for (const char* more : {R"("tool_calls": [])", R"("tool_calls": null)", R"("thinking": " ")"})
    CHECK_THROWS_WITH(turn(more), Contains("turn 1: expected 'content' to be a string, got null"));
}

TEST_CASE("other members of a message and the row's tools are kept for the template") {
  const data::Row row = parse(R"({"functions": "[{\"name\": \"f\"}]", "messages": [
      {"role": "assistant", "content": null, "tool_calls": [{"id": "1"}], "weight": 1, "name": null},
      {"role": "tool", "content": "5", "tool_call_id": "1", "tool_calls": []}]})",
                              Format::kChat, {{"tools", "functions"}});
  const auto& conversation = std::get<text::Conversation>(row);
  CHECK(conversation.tools.dump() == R"([{"name":"f"}])");
  CHECK_FALSE(conversation.messages[0].has_content);
  CHECK(conversation.messages[0].extra.dump() == R"({"tool_calls":[{"id":"1"}]})");
  CHECK(conversation.messages[1].extra.dump() == R"({"tool_call_id":"1"})");
  const auto tools = [](const std::string& given) {
    const std::string text = R"({"messages": [{"role": "user", "content": "a"}], "tools": )" + given + "}";
    return std::get<text::Conversation>(parse(text, Format::kChat)).tools;
  };
  for (const char* none : {"null", "[]", "\"[]\"", "\"\""}) CHECK(tools(none).is_null());
  CHECK_THROWS_WITH(tools("{}"), Contains("line 1 of f") && Contains("list of JSON schemas"));
  CHECK_THROWS_WITH(tools("[1]"), Contains("list of JSON schemas"));
  CHECK_THROWS_WITH(tools("\"[{\""), Catch::StartsWith("[data] line 1 of f: expected 'tools' to be a list") &&
                                         Contains("got a text that is not valid JSON at line 1, column 2"));
}

TEST_CASE("tokens have labels of their own or learn every token") {
  CHECK(std::get<data::TokensRow>(parse(R"({"input_ids": [1, 2]})", Format::kTokens)).labels ==
        std::vector<std::int32_t>{1, 2});
  CHECK(std::get<data::TokensRow>(parse(R"({"input_ids": [1, 2], "labels": [-100, 2]})", Format::kTokens))
            .labels == std::vector<std::int32_t>{-100, 2});
  CHECK_THROWS_WITH(parse(R"({"input_ids": [1, 2], "labels": [2]})", Format::kTokens),
                    Contains("as many labels"));
  CHECK_THROWS_WITH(parse(R"({"input_ids": [1, "2"]})", Format::kTokens), Contains("element 1"));
  CHECK_THROWS_WITH(parse(R"({"input_ids": [1, 4294967296]})", Format::kTokens), Contains("element 1"));
  CHECK_THROWS_WITH(parse(R"({"input_ids": 1})", Format::kTokens), Contains("list of integers"));
}
