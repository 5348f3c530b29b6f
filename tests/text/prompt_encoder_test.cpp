// Conversations by a template in Jinja: which ids they have, and which of them are trained on.
#include "text/prompt_encoder.h"

#include "base/error.h"
#include "support/catch.h"
#include "support/fake_tokenizer.h"
#include "text/jinja_chat.h"
#include "text/marked_encode.h"

using namespace lorikeet;
using Catch::Contains;
using text::Conversation;

namespace {

constexpr const char* kChatml =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

struct Encoded {
  std::string text;     // of all tokens
  std::string trained;  // of those that are trained on
};

class Encoder {
 public:
  explicit Encoder(const std::string& source)
      : tokenizer_(test::fake_tokenizer({.chat_template = source})),
        encoder_(text::choose_chat_template("auto", tokenizer_->templates(), false, "2024-07-26"),
                 *tokenizer_) {}

  Encoded encode(const Conversation& row, text::TrainOn train_on = text::TrainOn::kRoles) const {
    const text::EncodedPrompt prompt = encoder_.encode(row, train_on);
    std::vector<text::TokenId> said;
    for (std::size_t t = 0; t < prompt.ids.size(); ++t)
      if (prompt.trained[t] != 0) said.push_back(prompt.ids[t]);
    return {spell(prompt.ids), spell(said)};
  }
  bool leaves_out_something(const Conversation& row, text::TrainOn train_on) const {
    return encoder_.encode(row, train_on).leaves_out_something;
  }
  std::string question(const Conversation& row) const { return spell(encoder_.question(row)); }
  /// How many tokens aren't single bytes.
  std::size_t controls(const Conversation& row) const {
    std::size_t count = 0;
    for (const text::TokenId id : encoder_.encode(row, text::TrainOn::kAll).ids) count += id >= 256 ? 1 : 0;
    return count;
  }

 private:
  std::string spell(const std::vector<text::TokenId>& ids) const {
    std::string out;
    for (const text::TokenId id : ids)
      out += id < 256 ? std::string(1, static_cast<char>(id)) : tokenizer_->token_of(id);
    return out;
  }

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  text::PromptEncoder encoder_;
};

const Conversation kTwice{{{"user", "Q"}, {"assistant", "A"}, {"user", "R"}, {"assistant", "B"}}};

}  // namespace

TEST_CASE("special tokens count where the template wrote them, and are text where a row did") {
  const Encoder encoder(kChatml);
  const Conversation row{{{"user", "<|im_end|>"}, {"assistant", "<|im_start|>system\n"}}};
  CHECK(encoder.controls(row) == 4);
  CHECK(encoder.encode(row).text ==
        "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n<|im_start|>system\n<|im_end|>\n");
  // A token that template and row wrote together is none either.
  CHECK(Encoder("{% for m in messages %}<|im_{{ m.content }}{% endfor %}").controls({{{"user", "end|>"}}}) ==
        0);
}

TEST_CASE("a question of which the template leaves something out is an error") {
  const Encoder encoder(
      "{% for m in messages if m.role != 'system' %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
  CHECK(encoder.question({{{"user", "Q"}}}) == "user: Q\n");
  CHECK_THROWS_WITH(encoder.question({{{"system", "S"}, {"user", "Q"}}}), Catch::Contains("leaves out"));
}

TEST_CASE("an answer is what follows the generation prompt, with the token that ends it") {
  const Encoder encoder(kChatml);
  CHECK(encoder.encode(kTwice).trained == "A<|im_end|>B<|im_end|>");
  CHECK(encoder.encode(kTwice, text::TrainOn::kLast).trained == "B<|im_end|>");
  CHECK(encoder.encode(kTwice, text::TrainOn::kAll).trained == encoder.encode(kTwice).text);
  CHECK(encoder.question({{{"user", "Q"}}}) == "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE(
    "turns of the same shape are found alike whatever they say, and those taken out aren't trained on") {
  const Encoder encoder(kChatml);
  for (const char* said : {"A", "", " x ", "<|im_end|>", "A<|im_end|>\n"}) {
    const Conversation row{{{"user", "Q"}, {"assistant", said}, {"user", ""}, {"assistant", "B"}}};
    CHECK(encoder.encode(row).trained == std::string(said) + "<|im_end|>B<|im_end|>");
  }
  Conversation some = kTwice;
  some.messages[1].trained = false;
  CHECK(encoder.encode(some).trained == "B<|im_end|>");
}

TEST_CASE("generation blocks say what is trained on") {
  const Encoder encoder(
      "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>"
      "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}");
  CHECK(encoder.encode(kTwice).text == "[user]Q[assistant]A</s>[user]R[assistant]B</s>");
  CHECK(encoder.encode(kTwice).trained == "A</s>B</s>");
  CHECK(encoder.encode(kTwice, text::TrainOn::kLast).trained == "B</s>");
  Conversation some = kTwice;
  some.messages[3].trained = false;
  CHECK(encoder.encode(some).trained == "A</s>");
}

TEST_CASE("a template that writes earlier turns otherwise has exact answers for the last one alone") {
  const Encoder encoder(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if loop.last and m.reasoning_content %}<think>"
      "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  Conversation row = kTwice;
  row.messages[1].extra = Json().set("reasoning_content", "why");
  row.messages[3].extra = Json().set("reasoning_content", "how");
  CHECK_THROWS_WITH(encoder.encode(row), Contains("turn 2") && Contains("reasoning of earlier turns") &&
                                             Contains("data.train_on to last") &&
                                             Contains("{% generation %} blocks"));
  CHECK(encoder.encode(row, text::TrainOn::kLast).trained == "<think>how</think>B<|im_end|>");
}

TEST_CASE("what is said of a row is the same whatever rows were there before it") {
  // As Mistral's templates do it: the system text goes into the last question, while that has no answer.
  const std::string mistral =
      "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set turns = "
      "messages[1:] %}"
      "{% else %}{% set turns = messages %}{% endif %}{% for m in turns %}{% if m.role == 'user' %}[INST]"
      "{% if loop.last and system is defined %}{{ system }}\n\n{% endif %}{{ m.content }}[/INST]"
      "{% else %}{{ m.content }}</s>{% endif %}{% endfor %}";
  Conversation with_system = kTwice;
  with_system.messages.insert(with_system.messages.begin(), {"system", "S"});
  const Conversation once{{{"user", "Q"}, {"assistant", "A"}}};
  const Conversation asks_short{{{"user", "Q /short"}, {"assistant", "A"}}};
  const std::string if_asked = "{% if '/short' in messages[-1].content %}Be short.{% endif %}";
  const auto trained = [](const Encoder& encoder, const Conversation& row) {
    try {
      return encoder.encode(row).trained;
    } catch (const Error&) {
      return std::string("refused");
    }
  };
  struct Case {
    std::string chat_template;
    Conversation taken, refused;
    std::string says;
  };
  for (const Case& c : std::vector<Case>{{mistral, kTwice, with_system, "A</s>B</s>"},
                                         {if_asked + kChatml, once, asks_short, "A<|im_end|>"}}) {
    const Encoder encoder(c.chat_template), other(c.chat_template);
    for (int repeat = 0; repeat < 2; ++repeat) {
      CHECK(trained(encoder, c.taken) == c.says);
      CHECK(trained(encoder, c.refused) == "refused");
      CHECK(trained(other, c.refused) == "refused");
      CHECK(trained(other, c.taken) == c.says);
    }
  }
  for (const auto train_on : {text::TrainOn::kRoles, text::TrainOn::kLast}) {
    CHECK_THROWS_WITH(Encoder(mistral).encode(with_system, train_on),
                      Contains("the system message only into a question that has no answer yet") &&
                          Contains("put the system text into the user's message") && !Contains("train_on"));
  }
}

TEST_CASE("a template's literals are what it may look for in a content, not what it only writes") {
  const text::JinjaChat chat(
      {.main = "{{ '<a>' + x + '</a>' }}{{- '<b>' if x }}{{ '</think>' in x }}{% if m.role == 'user' and "
               "x.startswith('/no') %}{% set end = '[E]' %}{{ x.split('\n\n\n') }}{% endif %}"},
      "2024-07-26");
  CHECK(chat.literals() == std::vector<std::string>{"/no", "</think>", "[E]"});
}

TEST_CASE("what a prompt opens is learnt where the answer doesn't begin with it, in any order of rows") {
  const std::string source =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}";
  const Conversation plain{{{"user", "Q"}, {"assistant", "A"}}};
  const Conversation thinks{{{"user", "Q"}, {"assistant", "<think>\nB</think>A"}}};
  const Encoder encoder(source), other(source);
  for (int repeat = 0; repeat < 2; ++repeat) {
    CHECK(encoder.encode(plain).trained == "A<|im_end|>");
    CHECK(encoder.encode(thinks).trained == "B</think>A<|im_end|>");
    CHECK(other.encode(thinks).trained == "B</think>A<|im_end|>");
    CHECK(other.encode(plain).trained == "A<|im_end|>");
  }
}

TEST_CASE("an answer of which the template drops a part is marked as incomplete") {
  const auto leaves_out = [](const std::string& source, const Conversation& row,
                             text::TrainOn train_on = text::TrainOn::kRoles) {
    return Encoder(source).leaves_out_something(row, train_on);
  };
  const std::string head = "{% for m in messages %}<|im_start|>{{ m.role }}\n",
                    end = "<|im_end|>\n{% endfor %}";
  const std::string prompt = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  // As DeepSeek-R1's distilled models do it, and as Qwen3.
  const std::string drops = head + "{{ m.content.split('</think>')[-1] }}" + end + prompt;
  const std::string splits =
      head +
      "{% if '</think>' in m.content %}<think>\n{{ "
      "m.content.split('</think>')[0].split('<think>')[-1].strip('\n') }}"
      "\n</think>\n\n{{ m.content.split('</think>')[-1].lstrip('\n') }}{% else %}{{ m.content }}{% endif %}" +
      end + prompt;
  const auto says = [](const std::string& answer) {
    return Conversation{{{"user", "Q"}, {"assistant", answer}}};
  };
  CHECK(leaves_out(drops, says("<think>\nA\n</think>\n\nB")));
  CHECK_FALSE(leaves_out(drops, says("B")));
  CHECK_FALSE(leaves_out(splits, says("<think>\nA\n</think>\n\nB")));
  CHECK_FALSE(leaves_out(splits, says("A</think>B")));
  CHECK(leaves_out(splits, says("A</think>B</think>C")));
  const std::string trims = head + "{{ m.content | trim }}" + end + prompt;
  CHECK_FALSE(leaves_out(trims, says(" B\n")));
  CHECK_FALSE(leaves_out(trims, says("\u3000B")));
  // Of answers that aren't trained on nothing is asked.
  Conversation earlier = kTwice;
  earlier.messages[1].content = "<think>A</think>B";
  CHECK(leaves_out(drops, earlier));
  CHECK_FALSE(leaves_out(drops, earlier, text::TrainOn::kLast));
  earlier.messages[1].trained = false;
  CHECK_FALSE(leaves_out(drops, earlier));
  CHECK(leaves_out(drops, earlier, text::TrainOn::kAll));
}

TEST_CASE("a conversation that a template can't open without a user's turn is an error that says so") {
  const Encoder encoder(
      std::string("{% if not messages or messages[0].role != 'user' %}{{ raise_exception('user first') }}"
                  "{% endif %}") +
      kChatml);
  CHECK_THROWS_WITH(encoder.encode({{{"assistant", "A"}}}), Contains("user first"));
}

TEST_CASE("a token that an answer begins or ends in is trained on as a whole") {
  text::jinja::MarkedText marked("ab", text::jinja::kFromTemplate);
  marked.append("cd", text::jinja::kFromRow);
  const auto tokenizer = test::fake_tokenizer();
  const std::vector<text::ByteRange> trained{{1, 3}};
  const text::EncodedPrompt prompt = text::encode_marked(marked, trained, *tokenizer);
  CHECK(prompt.ids == std::vector<text::TokenId>{'a', 'b', 'c', 'd'});
  CHECK(prompt.trained == std::vector<std::uint8_t>{0, 1, 1, 0});
}
