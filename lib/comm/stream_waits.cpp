#include "comm/stream_waits.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>
#include <vector>

namespace lorikeet::comm {
namespace {

struct Wait {
  explicit Wait(const at::Device& where)
      : device(where),
        begin(where.type(), c10::EventFlag::BACKEND_DEFAULT),  // the other flag doesn't take the time
        end(where.type(), c10::EventFlag::BACKEND_DEFAULT) {}

  at::Device device;
  c10::Event begin, end;
};

c10::Stream current_stream(const at::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

struct StreamWaits::Parts {
  std::vector<Wait> waits;
  double milliseconds = 0;  // of those that are there no more
};

StreamWaits::StreamWaits() : parts_(std::make_unique<Parts>()) {}
StreamWaits::~StreamWaits() = default;

void StreamWaits::begin(const at::Device& device) {
  constexpr std::size_t kMostOpen = 256;  // so that a long pass doesn't gather events without end
  if (parts_->waits.size() >= kMostOpen) collect();
  Wait wait(device);
  wait.begin.record(current_stream(device));
  parts_->waits.push_back(std::move(wait));
}

void StreamWaits::end() {
  Wait& wait = parts_->waits.back();
  wait.end.record(current_stream(wait.device));
}

void StreamWaits::collect() {
  std::vector<Wait> open;
  for (Wait& wait : parts_->waits) {
    if (wait.end.was_marked_for_recording() && wait.end.query()) {
      parts_->milliseconds += wait.begin.elapsedTime(wait.end);
    } else {
      open.push_back(std::move(wait));
    }
  }
  parts_->waits = std::move(open);
}

double StreamWaits::take_seconds() {
  collect();
  return std::exchange(parts_->milliseconds, 0) / 1e3;
}

}  // namespace lorikeet::comm
