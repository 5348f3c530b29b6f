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

  [[noreturn]] void fail_uneven(const std::string& found) const {
    throw Error("[launch] expected " + launcher_ +
                " to start the same number of processes on every machine, got " + found);
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

// What rank 0, or the launcher, listens on.
void read_store_address(const Variables& v, Placement* p) {
  p->host = v.text("MASTER_ADDR");
  p->port = v.number("MASTER_PORT", 1, 65535);
}

// From the numbers of processes; ranks are numbered machine after machine.
void derive_nodes(const Variables& v, Placement* p) {
  if (p->world_size % p->local_size != 0) {
    v.fail_uneven(std::to_string(p->local_size) + " processes here and " + std::to_string(p->world_size) +
                  " in all");
  }
  p->nodes = p->world_size / p->local_size;
  p->node = p->rank / p->local_size;
}

// Weights are shared by ranks that follow each other, and the first of a machine chooses its devices.
void require_machine_after_machine(const Placement& p, const std::string& remedy) {
  const int expected = p.node * p.local_size + p.local_rank;
  if (p.rank == expected) return;
  throw Error("[launch] expected " + p.launcher + " to number the ranks machine after machine, got rank " +
              std::to_string(p.rank) + " as process " + std::to_string(p.local_rank) + " of " +
              std::to_string(p.local_size) + " on machine " + std::to_string(p.node) + "; " + remedy);
}

Placement from_own(const Environment& environment) {
  const Variables v(environment, "lorikeet run");
  Placement p{.launcher = "lorikeet run"};
  p.world_size = v.number("LORIKEET_WORLD_SIZE", 1, kMost);
  p.rank = v.number("LORIKEET_RANK", 0, p.world_size - 1);
  p.local_size = p.world_size;
  p.local_rank = p.rank;
  p.port = v.number("LORIKEET_STORE_PORT", 1, 65535);
  if (p.rank == 0) p.listen_fd = v.number("LORIKEET_LISTEN_FD", 3, kMost);
  return p;
}

Placement from_torchrun(const Environment& environment) {
  const Variables v(environment, "torchrun");
  Placement p{.launcher = "torchrun"};
  read_counts(v, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", &p);
  derive_nodes(v, &p);
  if (v.maybe("GROUP_RANK") && v.number("GROUP_RANK", 0, kMost) != p.node) {
    v.fail_uneven("rank " + std::to_string(p.rank) + " is on machine " + v.text("GROUP_RANK") + " with " +
                  std::to_string(p.local_size) + " processes");
  }
  require_machine_after_machine(p, "start the same number of processes on each of them");
  read_store_address(v, &p);
  p.store_is_held = v.maybe("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (v.maybe("TORCHELASTIC_RESTART_COUNT")) p.restarts = v.number("TORCHELASTIC_RESTART_COUNT", 0, kMost);
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
    v.fail_uneven(std::to_string(p.world_size) + " tasks on " + std::to_string(p.nodes) +
                  " machines (--ntasks-per-node sets them)");
  }
  p.local_size = p.world_size / p.nodes;
  require_machine_after_machine(p, "use --distribution=block and --ntasks-per-node");
  if (v.maybe("MASTER_ADDR")) {
    read_store_address(v, &p);
    return p;
  }
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
  derive_nodes(v, &p);
  require_machine_after_machine(p, "use --map-by slot");
  if (p.alone()) return p;
  if (!v.maybe("MASTER_ADDR")) {
    throw Error("[launch] mpirun started " + std::to_string(p.world_size) +
                " processes without saying where they meet; add -x MASTER_ADDR=<host of rank 0> "
                "-x MASTER_PORT=<a free port there>");
  }
  read_store_address(v, &p);
  return p;
}

}  // namespace

Environment process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

Placement read_placement(const Environment& environment) {
  if (any(environment, {"LORIKEET_RANK", "LORIKEET_WORLD_SIZE"})) return from_own(environment);
  if (any(environment, {"RANK", "WORLD_SIZE", "LOCAL_RANK"})) return from_torchrun(environment);
  // A batch script's own shell has SLURM_PROCID too.
  if (any(environment, {"SLURM_STEP_ID"})) return from_slurm(environment);
  if (any(environment, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"})) return from_mpi(environment);
  return {};
}

}  // namespace lorikeet::comm
