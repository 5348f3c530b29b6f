#include "comm/store.h"

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

void set(c10d::Store& store, const std::string& key, const std::string& text) {
  try {
    store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
  } catch (const std::exception& error) {
    throw PeerLost("[launch] the first rank, which holds the store, has failed: it took no '" + key + "' (" +
                   reason(error) + ")");
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Store> connect_store(const Placement& placement, std::chrono::seconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(placement.port);
  options.timeout = timeout;
  options.waitWorkers = false;
  if (placement.rank == 0 && !placement.store_is_held) {
    options.isServer = true;
    options.masterListenFd =
        placement.listen_fd >= 0 ? placement.listen_fd : release(listen_on(placement.host, placement.port));
  }
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(placement.host, options);
    if (!placement.store_is_held) return store;
    return part_of(store, "restart/" + std::to_string(placement.restarts));
  } catch (const std::exception& error) {
    throw Error("[launch] rank " + std::to_string(placement.rank) + " can't reach " +
                    escape_control(placement.host) + ":" + std::to_string(placement.port) + " within " +
                    std::to_string(timeout.count()) + " s: " + reason(error),
                ErrorKind::kEnvironment);
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
