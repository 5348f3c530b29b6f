#include "comm/placement.h"

#include <map>

#include "support/catch.h"
#include "support/error_text.h"

using namespace lorikeet;
using namespace lorikeet::comm;
using Catch::Contains;

namespace {

using Variables = std::map<std::string, std::string>;

Placement read(const Variables& variables) {
  return read_placement([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string error_of(const Variables& variables) {
  return test::error_text([&] { read(variables); });
}

const Variables kOwn{{"LORIKEET_RANK", "3"}, {"LORIKEET_WORLD_SIZE", "4"}, {"LORIKEET_STORE_PORT", "4000"}};
const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "node1"},
                          {"MASTER_PORT", "29500"}};
const Variables kSlurm{{"SLURM_STEP_ID", "0"},    {"SLURM_PROCID", "9"},
                       {"SLURM_NTASKS", "16"},    {"SLURM_LOCALID", "1"},
                       {"SLURM_NODEID", "1"},     {"SLURM_JOB_NUM_NODES", "2"},
                       {"SLURM_JOB_ID", "70001"}, {"SLURM_JOB_NODELIST", "gpu[07-08]"}};
const Variables kMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                     {"OMPI_COMM_WORLD_SIZE", "2"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

Variables with(const Variables& variables, const std::string& name, const std::string& value,
               const std::string& other, const std::string& other_value) {
  return with(with(variables, name, value), other, other_value);
}

}  // namespace

TEST_CASE("a process that no launcher started is alone") {
  const Placement p = read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}});  // a batch script's own shell
  CHECK(p.alone());
  CHECK(p.launcher.empty());
}

TEST_CASE("every launcher's variables are understood") {
  Placement p = read(kOwn);
  CHECK(p.launcher == "lorikeet run");
  CHECK((p.rank == 3 && p.world_size == 4 && p.local_rank == 3 && p.local_size == 4));
  CHECK((p.node == 0 && p.nodes == 1 && p.host == "127.0.0.1" && p.port == 4000 && !p.store_is_held));
  CHECK(p.listen_fd == -1);
  Variables first = with(kOwn, "LORIKEET_RANK", "0");
  CHECK_THAT(error_of(first), Contains("LORIKEET_LISTEN_FD is not set"));
  CHECK(read(with(first, "LORIKEET_LISTEN_FD", "7")).listen_fd == 7);

  p = read(kTorchrun);
  CHECK(p.launcher == "torchrun");
  CHECK((p.rank == 5 && p.world_size == 8 && p.local_rank == 1 && p.local_size == 4));
  CHECK((p.node == 1 && p.nodes == 2 && p.host == "node1" && p.port == 29500 && !p.store_is_held));
  p = read(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True"));
  CHECK((p.store_is_held && p.restarts == 0));
  CHECK(read(with(kTorchrun, "TORCHELASTIC_RESTART_COUNT", "2")).restarts == 2);

  p = read(kSlurm);
  CHECK(p.launcher == "srun");
  CHECK((p.rank == 9 && p.world_size == 16 && p.local_rank == 1 && p.local_size == 8));
  CHECK((p.node == 1 && p.nodes == 2 && p.host == "gpu07" && p.port == 12000 + 70001 % 16000));
  CHECK(read(with(kSlurm, "SLURM_JOB_ID", "70002")).port != p.port);

  p = read(with(kSlurm, "MASTER_ADDR", "10.0.0.7", "MASTER_PORT", "5000"));
  CHECK((p.node == 1 && p.host == "10.0.0.7" && p.port == 5000));

  p = read(with(kMpi, "MASTER_ADDR", "127.0.0.1", "MASTER_PORT", "5000"));
  CHECK(p.launcher == "mpirun");
  CHECK((p.rank == 1 && p.world_size == 2 && p.local_rank == 1 && p.local_size == 2 && p.port == 5000));
}

TEST_CASE("half-set, contradicting and malformed variables are errors that name one") {
  for (const auto* all : {&kOwn, &kTorchrun}) {
    for (const auto& [name, value] : *all) {
      if (name == "RANK" || name == "LORIKEET_RANK") continue;
      INFO(name);
      CHECK_THAT(error_of(without(*all, name)), Contains(name + " is not set although other variables of "));
      if (name.find("ADDR") == std::string::npos) CHECK_THAT(error_of(with(*all, name, "x")), Contains(name));
    }
  }
  CHECK_THAT(error_of({{"RANK", "0"}}), Contains("WORLD_SIZE is not set"));
  CHECK_THAT(error_of(with(kTorchrun, "RANK", "8")),
             Contains("RANK] expected a number from 0 to 7, got '8'"));
  CHECK_THAT(error_of(kMpi), Contains("-x MASTER_ADDR=<host of rank 0>"));
  CHECK_THAT(error_of(with(kMpi, "MASTER_ADDR", "host")), Contains("MASTER_PORT is not set"));
}

TEST_CASE("different numbers of processes on the machines of a run are refused") {
  const auto said = Contains("the same number of processes on every machine");
  CHECK_THAT(error_of(with(kSlurm, "SLURM_NTASKS", "15")), said);
  CHECK_THAT(error_of(with(kTorchrun, "WORLD_SIZE", "7")), said);
  // Four processes on machine 0 and two, ranks 4 and 5, on machine 1.
  CHECK_THAT(error_of(with(with(kTorchrun, "WORLD_SIZE", "6", "LOCAL_WORLD_SIZE", "2"), "GROUP_RANK", "1")),
             said);
}

TEST_CASE("ranks that aren't numbered machine after machine are refused") {
  const auto said = Contains("to number the ranks machine after machine");
  CHECK_THAT(error_of(with(kSlurm, "SLURM_LOCALID", "4", "SLURM_NODEID", "1")),
             said && Contains("rank 9 as process 4 of 8 on machine 1; use --distribution=block"));
  CHECK_THAT(error_of(with(kTorchrun, "LOCAL_RANK", "2")), said);
  // Two machines of four, `--map-by node`: ranks 0, 2, 4, 6 on the first.
  Variables by_node = with(with(kMpi, "MASTER_ADDR", "host", "MASTER_PORT", "5000"), "OMPI_COMM_WORLD_SIZE",
                           "8", "OMPI_COMM_WORLD_LOCAL_SIZE", "4");
  CHECK_THAT(error_of(with(by_node, "OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_LOCAL_RANK", "1")),
             said && Contains("use --map-by slot"));
  CHECK(read(with(by_node, "OMPI_COMM_WORLD_RANK", "6", "OMPI_COMM_WORLD_LOCAL_RANK", "2")).node == 1);
}
