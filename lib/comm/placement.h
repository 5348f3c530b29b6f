#pragma once

#include <functional>
#include <optional>
#include <string>

namespace lorikeet::comm {

/// Who a process is among those of a run, and where they meet.
struct Placement {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  ///< among this machine's processes: picks the device
  int local_size = 1;
  int node = 0;
  int nodes = 1;
  std::string host = "127.0.0.1";  ///< where the store listens
  int port = 0;
  /// True where something else than rank 0 listens at host:port (torchrun's agent).
  bool store_is_held = false;
  /// Rank 0's listening socket, where the launcher has made it; else -1.
  int listen_fd = -1;
  std::string launcher;  ///< "lorikeet run", "torchrun", "srun", "mpirun", or "" for a process on its own

  bool alone() const { return world_size == 1; }
};

/// Looks an environment variable up: nullopt when it isn't set.
using Environment = std::function<std::optional<std::string>(const char*)>;

/// This process's.
Environment process_environment();

/// Reads the placement that a launcher has put into the environment:
///   lorikeet run  LORIKEET_RANK, _WORLD_SIZE, _LOCAL_RANK, _LOCAL_SIZE, _NODE, _NODES, _RENDEZVOUS,
///                 and for rank 0 _LISTEN_FD
///   torchrun      RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT,
///                 TORCHELASTIC_USE_AGENT_STORE
///   srun          SLURM_PROCID, _NTASKS, _LOCALID, _NODEID, _JOB_NUM_NODES, _JOB_NODELIST (or _STEP_),
///   _JOB_ID;
///                 the first host is where they meet, on a port made from the job's number
///   mpirun        OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE; across machines the meeting point
///   has
///                 to be given as `rendezvous`
/// tried in this order; none of them: a process on its own. `rendezvous` ("host:port", from the command line)
/// replaces what the environment says. Throws Error naming the variable when a set is incomplete, is not a
/// number, or contradicts itself.
Placement read_placement(const Environment& environment, const std::optional<std::string>& rendezvous);

/// "host:port" or "[v6]:port" in its parts. Throws Error (starting with `where`) for anything else.
std::pair<std::string, int> parse_address(const std::string& address, const std::string& where);

}  // namespace lorikeet::comm
