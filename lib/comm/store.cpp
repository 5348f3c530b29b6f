#include "comm/store.h"

#include <c10/util/Logging.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/strings.h"
#include "comm/peer_lost.h"
#include "comm/reason.h"
#include "comm/socket.h"

namespace lorikeet::comm {
namespace {

// c10d keeps the descriptor open for good.
int release(Listener listener) { return listener.fd.release(); }

std::string get(c10d::Store& store, const std::string& key, std::chrono::seconds timeout) {
  try {
    store.wait({key}, timeout);
    const std::vector<std::uint8_t> bytes = store.get(key);
    return {bytes.begin(), bytes.end()};
  } catch (const std::exception& error) {
    throw PeerLost("[launch] another rank has failed or is stuck: it gave no '" + key + "' (" +
                   reason(error) + ")");
  }
}

[[noreturn]] void fail_to_set(const std::string& key, const std::exception& error) {
  throw PeerLost("[launch] the first rank, which holds the store, has failed: it took no '" + key + "' (" +
                 reason(error) + ")");
}

void set(c10d::Store& store, const std::string& key, const std::string& text) {
  try {
    store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
  } catch (const std::exception& error) {
    fail_to_set(key, error);
  }
}

// While one lives c10d logs no errors, with their stack traces: who makes it reports them. A user who has
// asked for more than errors (TORCH_CPP_LOG_LEVEL) keeps all.
class QuietErrors {
 public:
  QuietErrors() : before_(FLAGS_caffe2_log_level) {
    if (before_ == c10::GLOG_ERROR) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
  }
  ~QuietErrors() { FLAGS_caffe2_log_level = before_; }
  QuietErrors(const QuietErrors&) = delete;
  QuietErrors& operator=(const QuietErrors&) = delete;

 private:
  int before_;
};

[[noreturn]] void fail_to_reach(const Placement& placement, std::chrono::seconds timeout,
                                const std::string& why) {
  throw Error("[launch] rank " + std::to_string(placement.rank) + " can't reach " +
                  escape_control(placement.host) + ":" + std::to_string(placement.port) + " within " +
                  std::to_string(timeout.count()) + " s: " + why,
              ErrorKind::kEnvironment);
}

c10::intrusive_ptr<c10d::TCPStore> hold_store(const Placement& placement, c10d::TCPStoreOptions options) {
  options.isServer = true;
  options.masterListenFd =
      placement.listen_fd >= 0 ? placement.listen_fd : release(listen_on(placement.host, placement.port));
  return c10::make_intrusive<c10d::TCPStore>(placement.host, options);
}

// c10d tries again each time that it can't connect, and each try may take the whole time: it gets what is
// left once something listens there.
c10::intrusive_ptr<c10d::TCPStore> reach_store(const Placement& placement, c10d::TCPStoreOptions options,
                                               std::chrono::seconds timeout) {
  using std::chrono::milliseconds;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  if (const auto problem = wait_for_listener(placement.host, placement.port, deadline))
    fail_to_reach(placement, timeout, *problem);
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
  options.timeout = std::max(left, milliseconds(1000));
  const QuietErrors quiet;
  auto store = c10::make_intrusive<c10d::TCPStore>(placement.host, options);
  store->setTimeout(timeout);
  return store;
}

}  // namespace

c10::intrusive_ptr<c10d::Store> connect_store(const Placement& placement, std::chrono::seconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(placement.port);
  options.timeout = timeout;
  options.waitWorkers = false;
  try {
    if (placement.rank == 0 && !placement.store_is_held) return hold_store(placement, options);
    const auto store = reach_store(placement, options, timeout);
    if (!placement.store_is_held) return store;
    return part_of(store, "restart/" + std::to_string(placement.restarts));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail_to_reach(placement, timeout,
                  reason(error) + "; something listens there, and it may not be the store of this run");
  }
}

std::string set_once(c10d::Store& store, const std::string& name, const std::string& text) {
  try {
    const std::vector<std::uint8_t> bytes =
        store.compareSet(name, {}, std::vector<std::uint8_t>(text.begin(), text.end()));
    return {bytes.begin(), bytes.end()};
  } catch (const std::exception& error) {
    fail_to_set(name, error);
  }
}

void announce(c10d::Store& store, const std::string& name) { set(store, name, "done"); }

void wait_for(c10d::Store& store, const std::string& name, std::chrono::seconds timeout) {
  get(store, name, timeout);
}

std::string share_text(c10d::Store& store, int rank, const std::string& name, const std::string& text,
                       std::chrono::seconds timeout) {
  if (rank == 0) {
    set(store, name, text);
    return text;
  }
  return get(store, name, timeout);
}

std::vector<std::string> texts_of_all(c10d::Store& store, int rank, int world_size, const std::string& name,
                                      const std::string& text, std::chrono::seconds timeout) {
  const auto key = [&](int of) { return name + "/" + std::to_string(of); };
  set(store, key(rank), text);
  std::vector<std::string> texts;
  texts.reserve(static_cast<std::size_t>(world_size));
  for (int other = 0; other < world_size; ++other) texts.push_back(get(store, key(other), timeout));
  return texts;
}

std::int64_t least_of(c10d::Store& store, int rank, int world_size, const std::string& name,
                      std::int64_t value, std::chrono::seconds timeout) {
  std::int64_t least = value;
  for (const std::string& text :
       texts_of_all(store, rank, world_size, name, std::to_string(value), timeout)) {
    least = std::min<std::int64_t>(least, std::stoll(text));
  }
  return least;
}

c10::intrusive_ptr<c10d::Store> part_of(const c10::intrusive_ptr<c10d::Store>& store,
                                        const std::string& name) {
  return c10::make_intrusive<c10d::PrefixStore>(name, store);
}

void require_agreement(c10d::Store& store, int rank, const Facts& facts, std::chrono::seconds timeout) {
  const Json mine = Json::Object(facts.begin(), facts.end());
  const std::string first = share_text(store, rank, "agreement", mine.dump(), timeout);
  const Json theirs = Json::parse(first, "agreement");
  for (const auto& [name, value] : facts) {
    const Json* other = theirs.find(name);
    const std::string found = other != nullptr && other->is_string() ? other->string() : "nothing";
    if (found == value) continue;
    throw Error("[launch] " + name + " differs between ranks: '" + escape_control(found) + "' on rank 0, '" +
                escape_control(value) + "' on rank " + std::to_string(rank) +
                "; start all of them from the same program, config, model and data");
  }
}

}  // namespace lorikeet::comm
