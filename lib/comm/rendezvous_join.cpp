#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/hmac.h"
#include "base/log.h"
#include "base/strings.h"
#include "comm/handshake.h"
#include "comm/rendezvous.h"

namespace lorikeet::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::to_string;

// For each step of one attempt.
constexpr std::chrono::seconds kAnswer{5};
constexpr std::chrono::milliseconds kPause{250};
// Beyond the host's own time, which gives the better error.
constexpr std::chrono::seconds kMargin{10};

class Joiner {
 public:
  Joiner(const NodeOptions& options, int processes, const Interruption& interruption)
      : options_(options),
        interruption_(interruption),
        hello_{.instance = random_hex(32),
               .version = options.version,
               .nodes = options.nodes,
               .node = options.node,
               .processes = processes} {}

  Meeting run() {
    const auto deadline =
        Clock::now() + std::chrono::milliseconds(static_cast<int>(options_.timeout_seconds * 1e3));
    for (bool told = false;; told = true) {
      if (auto meeting = attempt(deadline)) return std::move(*meeting);
      if (Clock::now() + kPause > deadline) {
        throw Error("[launch] node " + to_string(options_.node) + " can't join node 0 at " + there() +
                        " within " + format_seconds(options_.timeout_seconds) + ": " + problem_ +
                        "; is its launcher started, and the address right and let through by firewalls?",
                    ErrorKind::kEnvironment);
      }
      if (!told) log_info("[launch] node 0 is not at " + there() + " yet (" + problem_ + "); trying on");
      wait({-1, 0, 0}, Clock::now() + kPause);
    }
  }

 private:
  std::string there() const { return escape_control(host_and_port(options_.host, options_.port)); }

  // Whether something has come before the time is up. Throws when this launcher is to end.
  bool wait(pollfd what, Clock::time_point until) const {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
      pollfd watched[] = {what, {interruption_.descriptor, POLLIN, 0}};
      ::poll(watched, 2, static_cast<int>(std::clamp<std::int64_t>(left, 0, 200)));
      if (interruption_.asked && interruption_.asked()) {
        throw Error("[launch] node " + to_string(options_.node) + " was interrupted before the run began",
                    ErrorKind::kInterrupted);
      }
      if (watched[0].revents != 0) return true;
      if (left <= 0) return false;
    }
  }

  std::nullopt_t failed(const std::string& problem) {
    problem_ = problem;
    return std::nullopt;
  }

  UniqueFd connect(Clock::time_point until) {
    const auto found = resolve(options_.host, options_.port, &problem_);
    for (const addrinfo* a = found.get(); a != nullptr; a = a->ai_next) {
      UniqueFd fd = begin_connect(*a);
      if (!fd) {
        problem_ = std::strerror(errno);
      } else if (!wait({fd.get(), POLLOUT, 0}, until)) {
        problem_ = "no answer";
      } else if (const int error = connect_result(fd.get()); error != 0) {
        problem_ = std::strerror(error);
      } else if (connected_to_itself(fd.get())) {
        problem_ = "nobody listens";
      } else {
        return fd;
      }
    }
    return {};
  }

  // The next line, or none when the time is up or the connection has ended: problem_ says which.
  std::optional<std::string> line_from(LineChannel& channel, Clock::time_point until) {
    for (;;) {
      channel.receive();
      channel.flush();
      if (auto line = channel.next_line()) return line;
      if (!channel.open()) return failed(channel.end_reason());
      if (!wait(channel.watch(), until)) return failed("no answer");
    }
  }

  // One connection; none when it is worth another try.
  std::optional<Meeting> attempt(Clock::time_point deadline) {
    const auto soon = [&] { return std::min(deadline, Clock::now() + kAnswer); };
    UniqueFd fd = connect(soon());
    if (!fd) return std::nullopt;
    LineChannel channel(std::move(fd), kLongestJoinLine);
    const auto first = line_from(channel, soon());
    if (!first) return std::nullopt;
    const auto challenge = read_challenge(*first);
    if (!challenge) return failed("what answers there is no launcher");
    compare_secrets(*challenge, channel);
    hello_.nonce = random_hex(32);
    hello_.proof = options_.secret ? joiner_proof(*options_.secret, challenge->nonce, hello_) : "";
    channel.send(encode(hello_));
    const auto second = line_from(channel, soon());
    if (!second) return std::nullopt;
    throw_if_refused(*second);
    const auto welcome = read_welcome(*second);
    if (!welcome) return failed("what answers there is no launcher");
    if (options_.secret &&
        !equal_in_constant_time(welcome->proof, host_proof(*options_.secret, challenge->nonce, hello_))) {
      throw Error("[launch] what answers at " + there() + " doesn't know the secret, so it isn't node 0");
    }
    return wait_for_start(std::move(channel), std::chrono::seconds(welcome->wait_seconds));
  }

  void compare_secrets(const Challenge& challenge, LineChannel& channel) const {
    if (challenge.has_secret == options_.secret.has_value()) return;
    const std::string text =
        challenge.has_secret
            ? "[launch] node 0 at " + there() +
                  " asks for a secret and this node has none; give it the same --secret-file or "
                  "LORIKEET_SECRET"
            : "[launch] this node was given a secret and node 0 at " + there() +
                  " none; give every node the same --secret-file or LORIKEET_SECRET, or none";
    channel.send(encode(Refusal{text}));
    throw Error(text);
  }

  static void throw_if_refused(const std::string& line) {
    if (const auto refusal = read_refusal(line)) throw Error(escape_control(refusal->text), refusal->kind);
  }

  Meeting wait_for_start(LineChannel channel, std::chrono::seconds patience) {
    log_info("[launch] node " + to_string(options_.node) + " joined node 0 at " + there() +
             " and waits for the others");
    channel.end_when_lost();
    std::optional<std::string> line;
    try {
      line = line_from(channel, Clock::now() + patience + kMargin);
    } catch (const Error& interrupted) {
      channel.send(encode(Refusal{interrupted.what(), interrupted.kind()}));
      throw;
    }
    if (line) throw_if_refused(*line);
    const auto start = line ? read_start(*line) : std::nullopt;
    if (!start || start->processes.size() != static_cast<std::size_t>(options_.nodes) ||
        start->processes[static_cast<std::size_t>(options_.node)] != hello_.processes) {
      throw Error("[launch] node 0 at " + there() +
                      " was lost before the run began: " + (line ? std::string("it sent rubbish") : problem_),
                  ErrorKind::kEnvironment);
    }
    Meeting meeting{.node = options_.node,
                    .processes = start->processes,
                    .store_host = channel.peer(),
                    .store_port = start->store_port};
    meeting.others.push_back(std::move(channel));
    return meeting;
  }

  const NodeOptions& options_;
  const Interruption& interruption_;
  Hello hello_;
  std::string problem_;
};

}  // namespace

Meeting join_meeting(const NodeOptions& options, int processes, const Interruption& interruption) {
  return Joiner(options, processes, interruption).run();
}

}  // namespace lorikeet::comm
