#include "card/streams.h"

#include <algorithm>
#include <array>
#include <limits>

#include "card/memory.h"
#include "card/report.h"

namespace lorikeet::card {
namespace {

constexpr StreamKey kStreamsPerCard = 1 << 20;

thread_local int card_now = 0;
thread_local std::array<c10::StreamId, kCards> stream_now{};

std::map<StreamKey, Clock>& clocks() {
  static std::map<StreamKey, Clock> all;
  return all;
}

bool knows(const Clock& clock, StreamKey stream, std::int64_t moment) {
  const auto found = clock.find(stream);
  return found != clock.end() && found->second > moment;
}

}  // namespace

StreamKey stream_key(int card, c10::StreamId id) { return card * kStreamsPerCard + id; }
int card_of(StreamKey stream) { return static_cast<int>(stream / kStreamsPerCard); }
c10::StreamId id_of(StreamKey stream) { return stream % kStreamsPerCard; }

int current_card() { return card_now; }
void set_current_card(int card) { card_now = card; }
StreamKey current_stream(int card) { return stream_key(card, stream_now.at(static_cast<std::size_t>(card))); }
void set_current_stream(StreamKey stream) {
  stream_now.at(static_cast<std::size_t>(card_of(stream))) = id_of(stream);
}

StreamKey new_stream(int card) {
  const Lock lock(mutex());
  static c10::StreamId last = 0;
  return stream_key(card, ++last);
}

OnCard::OnCard(int card) : before_(card_now) {
  if (card >= 0) card_now = card;
}
OnCard::~OnCard() { card_now = before_; }

std::int64_t moment_of(StreamKey stream) {
  const Lock lock(mutex());
  return clocks()[stream][stream];
}

Clock known_after(StreamKey stream) {
  const Lock lock(mutex());
  Clock known = clocks()[stream];
  known[stream] = std::numeric_limits<std::int64_t>::max();
  return known;
}

Clock record_event(StreamKey stream) {
  const Lock lock(mutex());
  Clock& clock = clocks()[stream];
  ++clock[stream];  // what follows on the stream isn't covered by the event
  return clock;
}

void wait_for_event(StreamKey stream, const Clock& event) {
  const Lock lock(mutex());
  Clock& clock = clocks()[stream];
  for (const auto& [other, moment] : event) {
    if (other != stream) clock[other] = std::max(clock[other], moment);
  }
}

void note_access(const void* data, bool writes, StreamKey stream, const std::string& who) {
  const Lock lock(mutex());
  Block* block = block_of(data);
  if (block == nullptr) return;
  AccessHistory& history = block->history;
  const Clock& clock = clocks()[stream];
  const auto concurrent = [&](StreamKey other, std::int64_t moment) {
    return other >= 0 && other != stream && !knows(clock, other, moment);
  };
  if (concurrent(history.writer, history.written_at)) {
    count_hazard(who + ": uses what another stream wrote, without an event between them");
  }
  if (!writes) {
    history.read_at[stream] = moment_of(stream);
    return;
  }
  for (const auto& [reader, moment] : history.read_at) {
    if (concurrent(reader, moment)) {
      count_hazard(who + ": overwrites what another stream reads, without an event between them");
    }
  }
  history = {.writer = stream, .written_at = moment_of(stream), .read_at = {}};
}

void note_access(const void* data, bool writes, const std::string& who) {
  const Lock lock(mutex());
  if (const Block* block = block_of(data)) note_access(data, writes, current_stream(block->card), who);
}

}  // namespace lorikeet::card
