#include "text/answer_finder.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::text {
namespace {

constexpr std::size_t kMostKnown = 4096;

// Where a message's own text stands.
struct Place {
  std::size_t begin = 0, end = 0;
  std::size_t bytes = 0;  // of the message; fewer than end - begin where the template writes in between

  bool empty() const { return bytes == 0; }
};

std::vector<Place> places_of(const jinja::MarkedText& text, std::size_t messages) {
  std::vector<Place> places(messages);
  std::size_t begin = 0, near = 0;
  for (const jinja::MarkedText::Run& run : text.runs()) {
    if (const std::size_t tag = jinja::tag_of(run.origin); tag != 0) {
      near = message_of_tag(tag, near, messages);
      if (near < messages) {
        Place& place = places[near];
        if (place.empty()) place.begin = begin;
        place.end = run.end;
        place.bytes += run.end - begin;
      }
    }
    begin = run.end;
  }
  return places;
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

bool is_white(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
}

// True if the content stands in the text as it is but for white space around it.
bool is_whole(const std::string& content, std::string_view written) {
  const std::size_t at = content.find(written);
  return at != std::string::npos && is_white(std::string_view(content).substr(0, at)) &&
         is_white(std::string_view(content).substr(at + written.size()));
}

[[noreturn]] void fail(std::size_t turn, const std::string& what) {
  throw Error("[chat_template] turn " + std::to_string(turn + 1) + ": " + what);
}

bool has_reasoning(const Message& message) {
  return message.content.find("</think>") != std::string::npos ||
         std::any_of(kReasoningNames.begin(), kReasoningNames.end(),
                     [&](std::string_view name) { return message.extra.find(name) != nullptr; });
}

// The message whose text stands at `offset` or first behind it.
std::optional<std::size_t> message_from(const jinja::MarkedText& text, std::size_t offset,
                                        std::size_t messages) {
  std::size_t near = 0;
  for (const jinja::MarkedText::Run& run : text.runs()) {
    const std::size_t tag = jinja::tag_of(run.origin);
    if (tag == 0) continue;
    near = message_of_tag(tag, near, messages);
    if (run.end > offset) return near;
  }
  return std::nullopt;
}

}  // namespace

struct AnswerFinder::Row {
  const Conversation& conversation;
  const JinjaChat::Values& values;
  const jinja::MarkedText& whole;
  bool only_last;
  std::vector<Place> places;
  std::string shape;  // see AnswerFinder::shape_of

  const std::vector<Message>& messages() const { return conversation.messages; }
  bool answers(std::size_t i) const { return messages()[i].role == "assistant"; }
  /// The last assistant's message; nullopt if there is none.
  std::optional<std::size_t> last() const {
    for (std::size_t i = messages().size(); i-- > 0;)
      if (answers(i)) return i;
    return std::nullopt;
  }
  jinja::MarkedText render(const JinjaChat& chat, std::size_t count, bool generation_prompt) const {
    return chat.render(std::span(values).first(count), conversation.tools, generation_prompt);
  }
};

std::vector<ByteRange> AnswerFinder::find(const Conversation& conversation, const JinjaChat::Values& values,
                                          const jinja::MarkedText& whole, bool only_last) const {
  const bool marks_answers = chat_.has_generation(conversation.tools);
  const Row row{.conversation = conversation,
                .values = values,
                .whole = whole,
                .only_last = only_last,
                .places = places_of(whole, conversation.messages.size()),
                .shape = marks_answers ? "" : shape_of(conversation)};
  if (marks_answers) return generated(row, only_last);
  const auto last = row.last();
  std::vector<ByteRange> ranges;
  for (std::size_t i = only_last && last ? *last : 0; i < values.size(); ++i) {
    if (!row.answers(i) || !row.messages()[i].trained) continue;
    const ByteRange range = answer(row, i);
    if (range.begin < range.end) ranges.push_back(range);
  }
  return ranges;
}

// The prompt, `asked`, isn't what the whole begins with: from `from` on the two differ, before the answer.
void AnswerFinder::fail_by_prompt(const Row& row, std::size_t i, const jinja::MarkedText& asked,
                                  std::size_t from) const {
  const auto other = message_from(asked, from, i);
  const bool lacks_system =
      other && *other < i && row.messages()[*other].role == "system" && row.places[*other].empty();
  if (lacks_system) {
    fail(i,
         "the template writes the system message only into a question that has no answer yet, and leaves it "
         "out of this row, which would be learnt without it; put the system text into the user's message, or "
         "choose another data.chat_template");
  }
  fail(i, std::string("the template writes what stands before this answer otherwise once the answer is "
                      "there, so it isn't clear which tokens are the answer; ") +
              (row.only_last ? ""
                             : "take the turn out of the loss (\"train\": false), set data.train_on to last "
                               "where later turns are what is to be learnt, or ") +
              "choose another data.chat_template");
}

// Generation blocks, each of the message whose text it holds. A block without any text of a row belongs to a
// turn that says nothing: it is trained on where all turns are.
std::vector<ByteRange> AnswerFinder::generated(const Row& row, bool only_last) const {
  const auto last = row.last();
  const bool all = !only_last && std::all_of(row.messages().begin(), row.messages().end(),
                                             [](const Message& message) { return message.trained; });
  std::vector<ByteRange> ranges;
  std::size_t begin = 0, near = 0;
  std::optional<std::size_t> speaker;
  std::optional<ByteRange> block;
  const auto close = [&] {
    if (!block) return;
    const bool chosen = speaker ? row.messages()[*speaker].trained && (!only_last || speaker == last) : all;
    if (chosen) ranges.push_back(*block);
    block.reset();
    speaker.reset();
  };
  for (const jinja::MarkedText::Run& run : row.whole.runs()) {
    if ((run.origin & jinja::kGenerated) == 0) {
      close();
    } else {
      if (!block) block = ByteRange{begin, begin};
      block->end = run.end;
    }
    if (const std::size_t tag = jinja::tag_of(run.origin); tag != 0) {
      near = std::min(message_of_tag(tag, near, row.messages().size()), row.messages().size() - 1);
      if (block) speaker = near;
    }
    begin = run.end;
  }
  close();
  return ranges;
}

// The roles of a row, by which and by the texts between its messages its answers are known; empty for a row
// whose contents may decide what the template writes around them.
std::string AnswerFinder::shape_of(const Conversation& conversation) const {
  if (!conversation.tools.is_null()) return "";
  std::string shape;
  for (const Message& message : conversation.messages) {
    const bool is_looked_for = std::any_of(
        chat_.literals().begin(), chat_.literals().end(),
        [&](const std::string& literal) { return message.content.find(literal) != std::string::npos; });
    if (is_looked_for || !message.extra.is_null() || is_blank(message.content)) return "";
    shape += std::to_string(message.role.size()) + ':' + message.role;
  }
  return shape;
}

ByteRange AnswerFinder::answer(const Row& row, std::size_t i) const {
  const Place& place = row.places[i];
  const std::string_view whole = row.whole.bytes();
  const bool is_plain = !row.shape.empty() && !place.empty() && place.bytes == place.end - place.begin &&
                        is_whole(row.messages()[i].content, whole.substr(place.begin, place.bytes));
  std::string opened;
  if (!is_plain) return rendered_answer(row, i, whole.size(), opened);
  // What the template wrote between this text and the rows' texts around it.
  std::size_t before = 0, behind = whole.size(), at = 0;
  for (const jinja::MarkedText::Run& run : row.whole.runs()) {
    if ((run.origin & jinja::kFromRow) != 0) {
      if (run.end <= place.begin) before = run.end;
      if (at >= place.end) {
        behind = at;
        break;
      }
    }
    at = run.end;
  }
  std::string key = row.shape + '\0' + std::to_string(i) + '\0';
  key += whole.substr(before, place.begin - before);
  key += '\0';
  key += whole.substr(place.end, behind - place.end);
  const auto is_opened_by = [&](const std::string& prompt) {
    return !prompt.empty() && whole.substr(place.begin).starts_with(prompt);
  };
  {
    const std::shared_lock lock(mutex_);
    if (const auto known = known_.find(key); known != known_.end() && !is_opened_by(known->second.opened))
      return {place.begin - known->second.before, place.end + known->second.behind};
  }
  const ByteRange range = rendered_answer(row, i, behind, opened);
  if (range.begin >= before && range.begin <= place.begin && range.end >= place.end) {
    const std::unique_lock lock(mutex_);
    if (known_.size() < kMostKnown)
      known_[key] = {
          .before = place.begin - range.begin, .behind = range.end - place.end, .opened = std::move(opened)};
  }
  return range;
}

// The answer by rendering the messages before it, and those through it. It ends at `next` at the latest.
// `opened` becomes what the prompt has from where the answer's text begins in the whole.
ByteRange AnswerFinder::rendered_answer(const Row& row, std::size_t i, std::size_t next,
                                        std::string& opened) const {
  const std::string_view whole = row.whole.bytes();
  const Place& place = row.places[i];
  const jinja::MarkedText asked = [&] {
    try {
      return row.render(chat_, i, /*generation_prompt=*/true);
    } catch (const Error& error) {
      if (i > 0) throw;
      fail(0,
           "the conversation begins with the assistant's turn, before which this template writes nothing (" +
               std::string(error.what()) +
               "); take the turn out of the row, or out of the loss (\"train\": false)");
    }
  }();
  std::size_t begin = common_prefix(asked.bytes(), whole);
  if (begin < asked.size()) {
    // A prompt may open reasoning that the row has none of: the answer begins where the two part.
    if (place.empty() || begin < place.begin) fail_by_prompt(row, i, asked, begin);
    begin = place.begin;
  }
  if (!place.empty() && asked.size() > place.begin) opened = asked.bytes().substr(place.begin);
  const bool is_last = i + 1 == row.values.size();
  const jinja::MarkedText through = is_last ? row.whole : row.render(chat_, i + 1, false);
  const Place said = places_of(through, i + 1)[i];
  const std::size_t own = std::max(said.end, begin);
  const std::size_t same = common_prefix(through.bytes(), whole);
  if (same < own) {
    fail(i,
         std::string(has_reasoning(row.messages()[i])
                         ? "the template leaves out the reasoning of earlier turns"
                         : "the template writes an earlier turn otherwise than the one that is "
                           "answered") +
             ", so this one isn't in the text as the model would have to say it; " +
             (row.only_last ? "" : "set data.train_on to last, or ") +
             "choose a data.chat_template with {% generation %} blocks, such as TRL's qwen3_training.jinja "
             "for Qwen3");
  }
  return {begin, end_of_turn(whole, own, std::max(own, std::min(same, next)))};
}

std::size_t AnswerFinder::end_of_turn(std::string_view text, std::size_t from, std::size_t limit) const {
  const std::string_view tail = text.substr(from, limit - from);
  if (const auto eos = tokenizer_.eos_id()) {
    const std::string spelt = tokenizer_.token_of(*eos);
    if (const std::size_t at = tail.find(spelt); at != std::string_view::npos)
      return from + at + spelt.size();
  }
  for (const TextSegment& segment : tokenizer_.split_at_added(tail, {.add_special_tokens = false}))
    if (segment.id && tokenizer_.is_special(*segment.id)) return from + segment.end;
  return limit;
}

}  // namespace lorikeet::text
