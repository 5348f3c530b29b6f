#include "comm/rendezvous.h"

#include <unistd.h>

#include <array>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "base/strings.h"
#include "comm/store.h"

namespace lorikeet::comm {
namespace {

std::string shape_of(const Placement& placement) {
  return std::to_string(placement.world_size) + " processes, " + std::to_string(placement.local_size) +
         " a machine";
}

std::string this_process() { return "process " + std::to_string(getpid()) + " on " + host_name(); }

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "a machine without a name";
  return escape_control(name.data());
}

std::string rank_name(int rank, const std::string& host) {
  return "rank " + std::to_string(rank) + (host.empty() ? "" : " on " + host);
}

void claim_rank(c10d::Store& store, const Placement& placement) {
  // Containers may share a host's name, and have the same process ids.
  std::random_device random;
  const std::string token = std::to_string(random()) + std::to_string(random());
  const std::string own = Json().set("process", this_process()).set("token", token).dump();
  const std::string rank = std::to_string(placement.rank);
  const std::string holder = set_once(store, "here/" + rank, own);
  if (holder == own) return;
  const Json json = Json::parse(holder, "a rank's claim");
  throw Error("[launch] rank " + rank + " was started twice: " +
              escape_control(JsonView(json, "a rank's claim").at("process").as_string()) +
              " has it already, and this is " + this_process() +
              "; give each process a rank of its own, and each machine a node rank");
}

void require_same_shape(c10d::Store& store, const Placement& placement, std::chrono::seconds timeout) {
  const std::string own = shape_of(placement);
  const std::string first = share_text(store, placement.rank, "shape", own, timeout);
  if (first == own) return;
  throw Error("[launch] rank 0 was started as one of " + escape_control(first) + ", and rank " +
              std::to_string(placement.rank) + ", " + this_process() + ", as one of " + own +
              "; start all of them with the same numbers of processes and machines");
}

}  // namespace lorikeet::comm
