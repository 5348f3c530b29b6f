// Conversations by a template in Jinja: which ids they have, and which of them are trained on.
#include "text/prompt_encoder.h"

#include "base/error.h"
#include "support/catch.h"
#include "support/fake_tokenizer.h"
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
                                             Contains("data.train_on to last"));
  CHECK(encoder.encode(row, text::TrainOn::kLast).trained == "<think>how</think>B<|im_end|>");
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
