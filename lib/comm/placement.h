#pragma once

#include <functional>
#include <optional>
#include <string>

namespace lorikeet::comm {

/// A process's rank and place among the processes of its run, and where their store listens.
struct Placement {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  ///< among this machine's processes: chooses the device
  int local_size = 1;
  int node = 0;
  int nodes = 1;
  std::string host = "127.0.0.1";  ///< where the store listens
  int port = 0;
  /// True where the launcher's own process holds the store, not rank 0 (torchrun's agent).
  bool store_is_held = false;
  /// How often that launcher has started the processes before: its store has what those wrote.
  int restarts = 0;
  /// The socket that listens there, where the launcher has made it for rank 0; else -1.
  int listen_fd = -1;
  std::string launcher;  ///< "lorikeet run", "torchrun", "srun", "mpirun", or "" for a process on its own

  bool alone() const { return world_size == 1; }
};

/// The value of an environment variable: nullopt when it isn't set.
using Environment = std::function<std::optional<std::string>(const char*)>;

/// The environment of this process.
Environment process_environment();

/// Reads the placement from the environment variables of the launcher that has started this process:
///
///   lorikeet run  LORIKEET_RANK, _WORLD_SIZE, _STORE_PORT, and for rank 0 _LISTEN_FD: one machine alone
///   torchrun      RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, TORCHELASTIC_USE_AGENT_STORE,
///                 TORCHELASTIC_RESTART_COUNT
///   srun          SLURM_PROCID, _NTASKS, _LOCALID, _NODEID, _JOB_NUM_NODES, _JOB_NODELIST (or _STEP_),
///                 _JOB_ID
///   mpirun        OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
///
/// in this order; with none of them the process is alone. The store is at MASTER_ADDR and MASTER_PORT; srun
/// needs neither: without them it is on the first host of the job, at a port made from the job's number.
/// Throws Error naming the variable when a set is incomplete, is not a number, or contradicts itself, and
/// when the machines of a run have different numbers of processes, or ranks aren't numbered machine after
/// machine.
Placement read_placement(const Environment& environment);

}  // namespace lorikeet::comm
