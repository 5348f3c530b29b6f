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
  if (message.content.find("</think>") != std::string::npos) return true;
  const auto has = [&](const char* key) { return message.extra.find(key) != nullptr; };
  return has("reasoning_content") || has("reasoning") || has("thinking");
}

}  // namespace

struct AnswerFinder::Row {
  const Conversation& conversation;
  const JinjaChat::Values& values;
  const jinja::MarkedText& whole;
  std::vector<Place> places;

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
  const Row row{conversation, values, whole, places_of(whole, conversation.messages.size())};
  if (chat_.has_generation(conversation.tools)) return generated(row, only_last);
  const auto last = row.last();
  std::vector<ByteRange> ranges;
  for (std::size_t i = only_last && last ? *last : 0; i < values.size(); ++i) {
    if (!row.answers(i) || !row.messages()[i].trained) continue;
    const ByteRange range = answer(row, i);
    if (range.begin < range.end) ranges.push_back(range);
  }
  return ranges;
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

ByteRange AnswerFinder::answer(const Row& row, std::size_t i) const {
  const Message& message = row.messages()[i];
  const Place& place = row.places[i];
  const std::string_view whole = row.whole.bytes();
  const bool plain = message.extra.is_null() && !place.empty() && place.bytes == place.end - place.begin &&
                     is_whole(message.content, whole.substr(place.begin, place.bytes));
  if (!plain) return rendered_answer(row, i);
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
  std::string key(whole.substr(before, place.begin - before));
  key += '\0';
  key += whole.substr(place.end, behind - place.end);
  key += i + 1 == row.values.size() ? std::string_view("\0last", 5) : std::string_view("\0", 1);
  {
    const std::shared_lock lock(mutex_);
    if (const auto known = known_.find(key); known != known_.end())
      return {place.begin - known->second.before, place.end + known->second.behind};
  }
  const ByteRange range = rendered_answer(row, i);
  if (range.begin >= before && range.begin <= place.begin && range.end >= place.end && range.end <= behind) {
    const std::unique_lock lock(mutex_);
    if (known_.size() < kMostKnown) known_[key] = {place.begin - range.begin, range.end - place.end};
  }
  return range;
}

ByteRange AnswerFinder::rendered_answer(const Row& row, std::size_t i) const {
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
    if (place.empty() || begin < place.begin) {
      fail(i,
           "the template writes what stands before this answer otherwise once the answer is there, so it "
           "isn't clear which tokens are the answer; take the turn out of the loss (\"train\": false), set "
           "data.train_on to last where later turns are what is to be learnt, or choose another "
           "data.chat_template");
    }
    begin = place.begin;
  }
  const bool is_last = i + 1 == row.values.size();
  const jinja::MarkedText through = is_last ? row.whole : row.render(chat_, i + 1, false);
  const Place said = places_of(through, i + 1)[i];
  const std::size_t own = std::max(said.end, begin);
  const std::size_t same = common_prefix(through.bytes(), whole);
  if (same < own) {
    fail(i, std::string(has_reasoning(row.messages()[i])
                            ? "the template leaves out the reasoning of earlier turns"
                            : "the template writes an earlier turn otherwise than the one that is "
                              "answered") +
                ", so this one isn't in the text as the model would have to say it; set data.train_on to "
                "last, or choose another data.chat_template");
  }
  return {begin, end_of_turn(whole, own, same)};
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
