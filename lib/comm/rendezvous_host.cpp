#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

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

// A joiner answers at once. Whoever takes longer than this isn't one.
constexpr std::chrono::seconds kAnswer{5};
// Connections that have not proven anything; one more pushes the oldest out. A joiner that this happens to
// tries again.
constexpr std::size_t kMostGuests = 256;
constexpr int kAcceptsATurn = 64;

// Tells of connections that were turned away, at most once a second.
class StrangerLog {
 public:
  void note(const std::string& peer, const std::string& what) {
    ++unsaid_;
    if (Clock::now() < next_) return;
    const std::string more = unsaid_ > 1 ? " (and " + to_string(unsaid_ - 1) + " more)" : std::string();
    log_info("[launch] turned away a connection from " + peer + more + ": " + what);
    unsaid_ = 0;
    next_ = Clock::now() + std::chrono::seconds(1);
  }
  ~StrangerLog() {
    if (unsaid_ > 0) log_info("[launch] turned away " + to_string(unsaid_) + " more connections");
  }

 private:
  int unsaid_ = 0;
  Clock::time_point next_{};
};

// A connection that has not proven anything yet.
struct Guest {
  LineChannel channel;
  std::string nonce;
  Clock::time_point until;
};

// A launcher that is in.
struct Member {
  LineChannel channel;
  std::string instance;
  int processes = 0;
};

class Host {
 public:
  Host(const NodeOptions& options, int processes, const Interruption& interruption)
      : options_(options),
        interruption_(interruption),
        listener_(listen_on(options.host, options.port)),
        deadline_(Clock::now() + std::chrono::milliseconds(static_cast<int>(options.timeout_seconds * 1e3))),
        members_(static_cast<std::size_t>(options.nodes)) {
    members_[0].processes = processes;
    set_nonblocking(listener_.fd.get());
  }

  Meeting run() {
    begin();
    try {
      while (!complete()) {
        wait();
        if (interruption_.asked && interruption_.asked()) {
          throw Error("[launch] node 0 was interrupted before the run began", ErrorKind::kInterrupted);
        }
        hear_members();  // before guests: one that is gone makes room for its successor
        hear_guests();
        accept_guests();
        if (!complete() && Clock::now() > deadline_) throw_late();
      }
      return start();
    } catch (const Error& error) {
      for (Member& member : members_) member.channel.send(encode(Refusal{error.what(), error.kind()}));
      throw;
    }
  }

 private:
  std::string here() const { return host_and_port(listener_.address, listener_.port); }

  void begin() const {
    log_info("[launch] node 0 waits at " + here() + " for " + to_string(options_.nodes - 1) + " more");
    if (!options_.secret) {
      log_warning("[launch] no secret is set (--secret-file or LORIKEET_SECRET): whoever reaches " + here() +
                  " can join this run");
    }
    if (is_loopback(listener_.address)) {
      log_info("[launch] " + here() + " is a loopback address: launchers of other machines can't reach it");
    }
  }

  bool present(std::size_t node) const { return node == 0 || members_[node].channel.open(); }
  bool complete() const {
    for (std::size_t node = 0; node < members_.size(); ++node) {
      if (!present(node)) return false;
    }
    return true;
  }

  void wait() const {
    constexpr int kMilliseconds = 200;
    std::vector<pollfd> watched{{interruption_.descriptor, POLLIN, 0}, {listener_.fd.get(), POLLIN, 0}};
    for (const Guest& guest : guests_) watched.push_back(guest.channel.watch());
    for (const Member& member : members_) watched.push_back(member.channel.watch());
    ::poll(watched.data(), watched.size(), kMilliseconds);
  }

  void accept_guests() {
    for (int i = 0; i < kAcceptsATurn; ++i) {
      UniqueFd fd(::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd) {
        if (errno == EMFILE || errno == ENFILE) make_room();
        return;
      }
      if (guests_.size() >= kMostGuests) {
        strangers_.note(guests_.front().channel.peer(), "too many connections that say nothing");
        guests_.erase(guests_.begin());
      }
      Guest guest{LineChannel(std::move(fd), kLongestJoinLine), random_hex(32), Clock::now() + kAnswer};
      guest.channel.send(encode(Challenge{options_.version, guest.nonce, options_.secret.has_value()}));
      guests_.push_back(std::move(guest));
    }
  }

  // The process has no descriptor left.
  void make_room() {
    if (guests_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    guests_.clear();
  }

  void hear_guests() {
    for (Guest& guest : guests_) {
      guest.channel.receive();
      guest.channel.flush();
      if (const auto line = guest.channel.next_line()) {
        answer(guest, *line);
        guest.channel.close("answered");
      } else if (!guest.channel.open()) {
        strangers_.note(guest.channel.peer(), guest.channel.end_reason());
      } else if (Clock::now() > guest.until) {
        strangers_.note(guest.channel.peer(), "it said nothing");
        guest.channel.close("late");
      }
    }
    std::erase_if(guests_, [](const Guest& guest) { return !guest.channel.open(); });
  }

  void answer(Guest& guest, const std::string& line) {
    const auto hello = read_hello(line);
    if (!hello) return answer_other(guest, line);
    if (options_.secret &&
        !equal_in_constant_time(hello->proof, joiner_proof(*options_.secret, guest.nonce, *hello))) {
      unproven_ = true;
      guest.channel.send(encode(
          Refusal{"[launch] node 0 at " + here() + " has another secret; give every node the same one"}));
      return strangers_.note(guest.channel.peer(), "it doesn't know the secret");
    }
    if (const std::string problem = contradiction(guest, *hello); !problem.empty()) {
      guest.channel.send(encode(Refusal{problem}));
      throw Error(problem);
    }
    let_in(guest, *hello);
  }

  void answer_other(const Guest& guest, const std::string& line) {
    if (!read_refusal(line)) return strangers_.note(guest.channel.peer(), "it sent rubbish");
    // A launcher that has a secret where this one has none, or the other way round.
    if (!options_.secret) {
      throw Error("[launch] the launcher at " + guest.channel.peer() +
                  " was given a secret and node 0 none; give every node the same --secret-file or "
                  "LORIKEET_SECRET, or none");
    }
    unproven_ = true;
    strangers_.note(guest.channel.peer(), "it is a launcher without a secret");
  }

  // What keeps a launcher that knows the secret from this run; "" when nothing does.
  std::string contradiction(const Guest& guest, const Hello& hello) const {
    const std::string who = "[launch] the launcher at " + guest.channel.peer() + " ";
    if (hello.version != options_.version) {
      return who + "has version " + escape_control(hello.version) + " and node 0 version " +
             options_.version + "; install the same one everywhere";
    }
    if (hello.nodes != options_.nodes) {
      return who + "was given --nnodes " + to_string(hello.nodes) + " and node 0 --nnodes " +
             to_string(options_.nodes) + "; give every node the same";
    }
    if (hello.node < 1 || hello.node >= options_.nodes) {
      return who + "was given --node-rank " + to_string(hello.node) + ", expected one from 1 to " +
             to_string(options_.nodes - 1) + " with --nnodes " + to_string(options_.nodes);
    }
    const Member& member = members_[static_cast<std::size_t>(hello.node)];
    if (member.channel.open() && member.instance != hello.instance) {
      return who + "was given --node-rank " + to_string(hello.node) + " and so was the one at " +
             member.channel.peer() + "; give each node its own";
    }
    return "";
  }

  void let_in(Guest& guest, const Hello& hello) {
    Member& member = members_[static_cast<std::size_t>(hello.node)];
    member = {std::move(guest.channel), hello.instance, hello.processes};
    guest.channel = {};
    member.channel.end_when_lost();
    const auto left = std::chrono::duration_cast<std::chrono::seconds>(deadline_ - Clock::now()).count();
    member.channel.send(encode(
        Welcome{.proof = options_.secret ? host_proof(*options_.secret, guest.nonce, hello) : std::string(),
                .wait_seconds = static_cast<int>(std::clamp<std::int64_t>(left, 0, 24L * 3600))}));
    log_info("[launch] node " + to_string(hello.node) + " joined from " + member.channel.peer() + " with " +
             to_string(hello.processes) + (hello.processes == 1 ? " process" : " processes"));
  }

  void hear_members() {
    for (std::size_t node = 1; node < members_.size(); ++node) {
      Member& member = members_[node];
      if (!member.channel.open()) continue;
      member.channel.receive();
      if (const auto line = member.channel.next_line()) {
        if (const auto refusal = read_refusal(*line))
          throw Error(escape_control(refusal->text), refusal->kind);
      }
      if (!member.channel.open()) {
        log_info("[launch] node " + to_string(node) + " left before the run began (" +
                 member.channel.end_reason() + "); it may come back");
      }
    }
  }

  [[noreturn]] void throw_late() const {
    std::vector<std::string> missing;
    for (std::size_t node = 0; node < members_.size(); ++node) {
      if (!present(node)) missing.push_back(to_string(node));
    }
    throw Error("[launch] node " + join(missing, ", ") + " of " + to_string(options_.nodes) +
                    " did not join at " + here() + " within " + format_seconds(options_.timeout_seconds) +
                    (unproven_ ? "; a launcher came that didn't know the secret: give every node the same one"
                               : "; start a launcher on every machine, or allow more --rendezvous-timeout"),
                unproven_ ? ErrorKind::kUsage : ErrorKind::kEnvironment);
  }

  Meeting start() {
    Meeting meeting{.node = 0, .store_host = listener_.address, .store = listen_on(listener_.address, 0)};
    meeting.store_port = meeting.store.port;
    for (const Member& member : members_) meeting.processes.push_back(member.processes);
    for (Member& member : members_) {
      member.channel.send(encode(Start{meeting.store_port, meeting.processes}));
      meeting.others.push_back(std::move(member.channel));
    }
    return meeting;
  }

  const NodeOptions& options_;
  const Interruption& interruption_;
  Listener listener_;
  Clock::time_point deadline_;
  std::vector<Guest> guests_;    // oldest first
  std::vector<Member> members_;  // by node; that of node 0 has no channel
  StrangerLog strangers_;
  bool unproven_ = false;  // a launcher came that didn't know the secret
};

}  // namespace

Meeting host_meeting(const NodeOptions& options, int processes, const Interruption& interruption) {
  return Host(options, processes, interruption).run();
}

}  // namespace lorikeet::comm
