#include "probe/machine.h"
#include "support/catch.h"

using namespace lorikeet::probe;
using Catch::Contains;
using Catch::StartsWith;
using lorikeet::test::machine;
using lorikeet::test::only;
using lorikeet::test::set;

TEST_CASE("more threads than CPUs is a warning with the number that fits") {
  Sources sources = machine(0);
  sources.cpu.allowed = 4;
  sources.needs.threads = 4;
  CHECK_THAT(only(sources, "threads"), StartsWith("ok: 4 threads on 4 CPUs"));
  sources.needs.threads = 16;
  CHECK_THAT(only(sources, "threads"),
             StartsWith("warning: 16 threads on 4 CPUs") && Contains("[export OMP_NUM_THREADS=4]"));
  sources.needs.threads = 4;
  sources.needs.ranks = 3;
  CHECK_THAT(only(sources, "threads"),
             StartsWith("warning: 3 processes of 4 threads") && Contains("[export OMP_NUM_THREADS=1]"));
  sources.needs.threads = 1;
  sources.needs.ranks = 8;
  CHECK_THAT(only(sources, "threads"),
             StartsWith("warning: 8 processes of 1 thread on 4 CPUs") && Contains("[start fewer processes"));
}

TEST_CASE("threads that are bound aren't held against the CPUs of the first one") {
  Sources sources = machine(0);
  sources.cpu.allowed = 1;
  set(sources, "OMP_PROC_BIND", "true");
  CHECK_THAT(only(sources, "threads"), StartsWith("ok: 2 threads, bound by OMP_PROC_BIND"));
  set(sources, "OMP_PROC_BIND", "FALSE");
  CHECK_THAT(only(sources, "threads"), StartsWith("warning: "));
}

TEST_CASE("one thread among many idle CPUs is a warning on the CPU and a note on GPUs") {
  Sources cpu = machine(0);
  cpu.needs.threads = 1;
  CHECK_THAT(only(cpu, "threads"), StartsWith("ok: "));  // nobody asked for it: there may be a reason
  set(cpu, "OMP_NUM_THREADS", "1");
  CHECK_THAT(only(cpu, "threads"), StartsWith("warning: OMP_NUM_THREADS=1 leaves most of 64 CPUs idle") &&
                                       Contains("[export OMP_NUM_THREADS=64]"));
  cpu.cpu.quota = 2;
  CHECK_THAT(only(cpu, "threads"), StartsWith("ok: "));
  Sources gpus = machine(8);
  gpus.needs.threads = 1;
  set(gpus, "OMP_NUM_THREADS", "1");
  CHECK_THAT(only(gpus, "threads"), StartsWith("note: ") && Contains("[export OMP_NUM_THREADS=8]"));
}

TEST_CASE("CPUs that the kernel doesn't tell are no trouble") {
  Sources sources = machine(0);
  sources.cpu.allowed = 0;
  CHECK_THAT(only(sources, "threads"), StartsWith("ok: 2 threads; the kernel doesn't tell"));
}

TEST_CASE("a container's quota below the threads is a warning, and spinning is named where it happens") {
  Sources sources = machine(0);
  sources.needs.threads = 8;
  sources.cpu.quota = 8;
  CHECK_THAT(only(sources, "CPU quota"), StartsWith("ok: "));
  sources.cpu.quota = 2.5;
  CHECK_THAT(only(sources, "CPU quota"), StartsWith("warning: this container may use 2.5 CPUs' worth") &&
                                             Contains("by spinning") &&
                                             Contains("[export OMP_NUM_THREADS=2 GOMP_SPINCOUNT=1000]"));
  set(sources, "GOMP_SPINCOUNT", "1000");
  CHECK_THAT(only(sources, "CPU quota"), !Contains("spinning") && Contains("[export OMP_NUM_THREADS=2]"));
  set(sources, "GOMP_SPINCOUNT", "infinity");
  CHECK_THAT(only(sources, "CPU quota"), Contains("spinning"));
  sources.variables.erase("GOMP_SPINCOUNT");
  set(sources, "OMP_WAIT_POLICY", "passive");
  CHECK_THAT(only(sources, "CPU quota"), !Contains("spinning"));
}

TEST_CASE("binding threads is a warning among several processes") {
  Sources sources = machine(2);
  set(sources, "OMP_PROC_BIND", "close");
  CHECK_THAT(only(sources, "thread binding"),
             StartsWith("warning: OMP_PROC_BIND=close binds the threads of all 2"));
  set(sources, "OMP_PROC_BIND", "false");
  CHECK_THAT(only(sources, "thread binding"), StartsWith("ok: "));
  Sources alone = machine(1);
  set(alone, "OMP_PROC_BIND", "close");
  CHECK_THAT(only(alone, "thread binding"), StartsWith("ok: "));
}
