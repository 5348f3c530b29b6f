#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <map>
#include <string>

// The current card and stream of each thread, and logical clocks that find work on two streams that no event
// orders.
namespace lorikeet::card {

constexpr int kCards = 2;

/// Names a stream of any card. A card's default stream has the id 0.
using StreamKey = std::int64_t;
StreamKey stream_key(int card, c10::StreamId id);
int card_of(StreamKey stream);
c10::StreamId id_of(StreamKey stream);

/// Of the calling thread, as cudaGetDevice and at::cuda::getCurrentCUDAStream give them.
int current_card();
void set_current_card(int card);
StreamKey current_stream(int card);
void set_current_stream(StreamKey stream);
StreamKey new_stream(int card);

/// Makes a card the current one while it lives; a negative number changes nothing.
class OnCard {
 public:
  explicit OnCard(int card);
  ~OnCard();
  OnCard(const OnCard&) = delete;
  OnCard& operator=(const OnCard&) = delete;

 private:
  int before_;
};

/// For each stream the moment up to which its work is known to be done: work at an earlier moment is ordered
/// before what the clock's owner does next.
using Clock = std::map<StreamKey, std::int64_t>;

/// The stream's own moment, at which work put on it now happens.
std::int64_t moment_of(StreamKey stream);
/// What a host that waits for all work on the stream knows afterwards.
Clock known_after(StreamKey stream);
/// cudaEventRecord and cudaStreamWaitEvent.
Clock record_event(StreamKey stream);
void wait_for_event(StreamKey stream, const Clock& event);

/// Who wrote a block of memory last, and who has read it since.
struct AccessHistory {
  StreamKey writer = -1;
  std::int64_t written_at = 0;
  std::map<StreamKey, std::int64_t> read_at;
};

/// Notes that `who` uses the block of card memory around `data` on `stream`, and counts a hazard when another
/// stream has used it and no event orders the two. Ignores memory that isn't a card's.
void note_access(const void* data, bool writes, StreamKey stream, const std::string& who);
/// The same on the current stream of the card that holds the memory, where ATen's kernels run.
void note_access(const void* data, bool writes, const std::string& who);

}  // namespace lorikeet::card
