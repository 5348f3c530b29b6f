#include "comm/line_channel.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "comm/socket.h"

namespace lorikeet::comm {
namespace {

// Nobody is sent more than that without taking it.
constexpr std::size_t kMostUnsent = std::size_t{4} << 20;

}  // namespace

LineChannel::LineChannel(UniqueFd socket, std::size_t longest_line)
    : socket_(std::move(socket)), longest_line_(longest_line), peer_(peer_address(socket_.get())) {
  set_nonblocking(socket_.get());
}

pollfd LineChannel::watch() const {
  return {socket_.get(), static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT), 0};
}

void LineChannel::end_when_lost() { comm::end_when_lost(socket_.get(), kLostSeconds); }

void LineChannel::receive() {
  // A bound a call, so that nobody who sends without end holds the loop up.
  std::array<char, 16384> buffer;
  for (std::size_t turn = 0; open() && received_.size() <= longest_line_ && turn < 64; ++turn) {
    const ssize_t count = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count <= 0) return close(count == 0 ? "the connection was closed" : std::strerror(errno));
    received_.append(buffer.data(), static_cast<std::size_t>(count));
  }
  if (received_.size() > longest_line_ && received_.find('\n') > longest_line_) {
    received_.clear();
    close("it sent a line of over " + std::to_string(longest_line_) + " bytes");
  }
}

std::optional<std::string> LineChannel::next_line() {
  const std::size_t end = received_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return line;
}

void LineChannel::send(std::string_view line) {
  if (!open()) return;
  unsent_.append(line) += '\n';
  flush();
  if (unsent_.size() > kMostUnsent) close("it takes nothing of what is sent");
}

void LineChannel::flush() {
  while (open() && !unsent_.empty()) {
    const ssize_t count = ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count < 0) {
      const std::string reason = std::strerror(errno);
      unsent_.clear();
      receive();  // its last words may be there still
      return close(reason);
    }
    unsent_.erase(0, static_cast<std::size_t>(count));
  }
}

void LineChannel::close(const std::string& reason) {
  if (!open()) return;
  socket_ = {};
  unsent_.clear();
  end_reason_ = reason;
}

}  // namespace lorikeet::comm
