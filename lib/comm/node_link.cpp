#include "comm/node_link.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/json.h"

namespace lorikeet::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = Message::Kind;

// Rows of a thousand ranks.
constexpr std::size_t kLongestLine = std::size_t{1} << 20;
constexpr std::size_t kMostValues = 4096;

// In the order of Message::Kind; kLost has no name, for it is never sent.
constexpr std::array<std::string_view, 7> kNames = {"interrupt", "down", "hang", "ask-standing",
                                                    "standing",  "end",  "over"};

}  // namespace

std::string encode(const Message& message) {
  Json json{Json::Object{{"type", kNames.at(static_cast<std::size_t>(message.kind))}}};
  if (message.now) json.set("now", true);
  if (!message.text.empty()) json.set("text", message.text);
  if (!message.rows.empty()) json.set("rows", Json::Array(message.rows.begin(), message.rows.end()));
  if (message.kind == Kind::kEnd || message.kind == Kind::kOver) {
    json.set("blame", static_cast<int>(message.verdict.blame));
    json.set("code", message.verdict.code);
    json.set("verdict", message.verdict.text);
  }
  return json.dump();
}

std::optional<Message> read_message(std::string_view line) {
  try {
    const Json json =
        Json::parse(line, "launch", {.max_depth = 3, .max_bytes = kLongestLine, .max_values = kMostValues});
    const JsonView view(json, "launch");
    const auto* const name = std::find(kNames.begin(), kNames.end(), view.at("type").as_string());
    if (name == kNames.end()) return std::nullopt;
    Message message{.kind = static_cast<Kind>(name - kNames.begin())};
    message.now = view.get_bool("now", false);
    message.text = view.get_string("text", "");
    if (const auto rows = view.maybe("rows")) {
      for (const JsonView& row : rows->items()) message.rows.push_back(row.as_string());
    }
    if (message.kind == Kind::kEnd || message.kind == Kind::kOver) {
      const std::int64_t blame = view.at("blame").as_int(), code = view.at("code").as_int();
      if (blame < 0 || blame > static_cast<int>(Blame::kNone) || code < 0 || code > 255) return std::nullopt;
      message.verdict = {static_cast<Blame>(blame), static_cast<int>(code), view.at("verdict").as_string()};
    }
    return message;
  } catch (const Error&) {
    return std::nullopt;
  }
}

NodeLink::NodeLink(std::vector<LineChannel> others) : others_(std::move(others)), told_lost_(others_.size()) {
  for (std::size_t node = 0; node < others_.size(); ++node) {
    others_[node].set_longest_line(kLongestLine);
    told_lost_[node] = !others_[node].open() && others_[node].end_reason().empty();  // node 0's own place
  }
}

void NodeLink::add_to(std::vector<pollfd>& watched) const {
  for (const LineChannel& other : others_) watched.push_back(other.watch());
}

std::vector<NodeLink::Received> NodeLink::receive() {
  std::vector<Received> all;
  for (std::size_t i = 0; i < others_.size(); ++i) {
    if (told_lost_[i]) continue;
    LineChannel& other = others_[i];
    const int node = static_cast<int>(i);
    other.receive();
    other.flush();
    while (const auto line = other.next_line()) {
      if (auto message = read_message(*line)) {
        all.push_back({node, std::move(*message)});
      } else {
        other.close("it sent something that is no message");
        break;
      }
    }
    if (other.open()) continue;
    told_lost_[i] = true;
    all.push_back({node, {.kind = Kind::kLost, .text = other.end_reason()}});
  }
  return all;
}

void NodeLink::send(int node, const Message& message) {
  others_.at(static_cast<std::size_t>(node)).send(encode(message));
}

void NodeLink::send_all(const Message& message, int except) {
  for (std::size_t node = 0; node < others_.size(); ++node) {
    if (static_cast<int>(node) != except) others_[node].send(encode(message));
  }
}

void NodeLink::flush(std::chrono::milliseconds limit) {
  const auto until = Clock::now() + limit;
  for (LineChannel& other : others_) {
    while (!other.all_sent() && Clock::now() < until) {
      pollfd ready{other.watch()};
      ready.events = POLLOUT;
      ::poll(&ready, 1, 50);
      other.flush();
    }
  }
}

}  // namespace lorikeet::comm
