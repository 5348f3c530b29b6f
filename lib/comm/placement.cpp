#include "comm/placement.h"

#include <charconv>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "comm/host_list.h"

namespace lorikeet::comm {
namespace {

int parse_number(const std::string& text, const std::string& where, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw Error("[" + where + "] expected a number from " + std::to_string(least) + " to " +
                std::to_string(most) + ", got '" + escape_control(text) + "'");
  }
  return value;
}

// The variables of one launcher.
class Variables {
 public:
  Variables(const Environment& environment, std::string launcher)
      : environment_(environment), launcher_(std::move(launcher)) {}

  std::optional<std::string> maybe(const char* name) const { return environment_(name); }

  std::string text(const char* name) const {
    if (auto value = environment_(name)) return *value;
    throw Error(std::string("[launch] ") + name + " is not set although other variables of " + launcher_ +
                " are; start every process by " + launcher_ + ", or unset them all");
  }

  int number(const char* name, int least, int most) const {
    return parse_number(text(name), std::string("launch: ") + name, least, most);
  }

 private:
  const Environment& environment_;
  std::string launcher_;
};

constexpr int kMost = 1'000'000;

bool any(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (environment(name)) return true;
  }
  return false;
}

void read_counts(const Variables& v, const char* rank, const char* size, const char* local_rank,
                 const char* local_size, Placement* p) {
  p->world_size = v.number(size, 1, kMost);
  p->rank = v.number(rank, 0, p->world_size - 1);
  p->local_size = v.number(local_size, 1, p->world_size);
  p->local_rank = v.number(local_rank, 0, p->local_size - 1);
}

void set_meeting_point(const std::string& address, const std::string& where, Placement* p) {
  std::tie(p->host, p->port) = parse_address(address, where);
}

Placement from_own(const Environment& environment) {
  const Variables v(environment, "lorikeet run");
  Placement p{.launcher = "lorikeet run"};
  read_counts(v, "LORIKEET_RANK", "LORIKEET_WORLD_SIZE", "LORIKEET_LOCAL_RANK", "LORIKEET_LOCAL_SIZE", &p);
  p.nodes = v.number("LORIKEET_NODES", 1, p.world_size);
  p.node = v.number("LORIKEET_NODE", 0, p.nodes - 1);
  set_meeting_point(v.text("LORIKEET_RENDEZVOUS"), "launch: LORIKEET_RENDEZVOUS", &p);
  if (p.rank == 0) p.listen_fd = v.number("LORIKEET_LISTEN_FD", 3, kMost);
  return p;
}

Placement from_torchrun(const Environment& environment) {
  const Variables v(environment, "torchrun");
  Placement p{.launcher = "torchrun"};
  read_counts(v, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", &p);
  p.nodes = (p.world_size + p.local_size - 1) / p.local_size;
  p.node = v.maybe("GROUP_RANK") ? v.number("GROUP_RANK", 0, p.nodes - 1) : p.rank / p.local_size;
  p.host = v.text("MASTER_ADDR");
  p.port = v.number("MASTER_PORT", 1, 65535);
  p.store_is_held = v.maybe("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return p;
}

Placement from_slurm(const Environment& environment) {
  const Variables v(environment, "srun");
  Placement p{.launcher = "srun"};
  p.world_size = v.number("SLURM_NTASKS", 1, kMost);
  p.rank = v.number("SLURM_PROCID", 0, p.world_size - 1);
  p.local_rank = v.number("SLURM_LOCALID", 0, p.world_size - 1);
  const char* nodes = v.maybe("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_JOB_NUM_NODES";
  p.nodes = v.number(nodes, 1, p.world_size);
  p.node = v.number("SLURM_NODEID", 0, p.nodes - 1);
  if (p.world_size % p.nodes != 0) {
    throw Error("[launch] srun started " + std::to_string(p.world_size) + " tasks on " +
                std::to_string(p.nodes) +
                " nodes; expected the same number on every node (--ntasks-per-node)");
  }
  p.local_size = p.world_size / p.nodes;
  const char* list = v.maybe("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  if (p.nodes > 1) p.host = parse_host_list(v.text(list)).front();
  // Two jobs of one machine must not meet; above the ports that services use, below the ephemeral ones.
  p.port = 12000 + v.number("SLURM_JOB_ID", 0, 2'000'000'000) % 16000;
  return p;
}

Placement from_mpi(const Environment& environment) {
  const Variables v(environment, "mpirun");
  Placement p{.launcher = "mpirun"};
  read_counts(v, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
              "OMPI_COMM_WORLD_LOCAL_SIZE", &p);
  p.nodes = (p.world_size + p.local_size - 1) / p.local_size;
  p.node = p.rank / p.local_size;
  return p;
}

}  // namespace

Environment process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

std::pair<std::string, int> parse_address(const std::string& address, const std::string& where) {
  const std::size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon == std::string::npos ? 0 : colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of(":[]/ ") != std::string::npos) {
    host.clear();
  }
  if (host.empty()) {
    throw Error("[" + where + "] expected host:port, got '" + escape_control(address) + "'");
  }
  return {host, parse_number(address.substr(colon + 1), where, 1, 65535)};
}

Placement read_placement(const Environment& environment, const std::optional<std::string>& rendezvous) {
  Placement p;
  if (any(environment, {"LORIKEET_RANK", "LORIKEET_WORLD_SIZE"})) {
    p = from_own(environment);
  } else if (any(environment, {"RANK", "WORLD_SIZE", "LOCAL_RANK"})) {
    p = from_torchrun(environment);
  } else if (any(environment, {"SLURM_STEP_ID"})) {  // a batch script's own shell has SLURM_PROCID too
    p = from_slurm(environment);
  } else if (any(environment, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"})) {
    p = from_mpi(environment);
  }
  if (rendezvous) set_meeting_point(*rendezvous, "--rendezvous", &p);
  if (p.world_size > 1 && p.port == 0) {
    throw Error(
        "[launch] " + p.launcher + " started " + std::to_string(p.world_size) +
        " processes without saying where they meet; add --rendezvous host:port, the host being that of "
        "rank 0");
  }
  return p;
}

}  // namespace lorikeet::comm
