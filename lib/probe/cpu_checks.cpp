// Threads against the CPUs that this process may use.
#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "device/number_list.h"
#include "probe/checks.h"

namespace lorikeet::probe {
namespace {

std::string number(double value) { return format_number("%.3g", value); }

std::string threads_command(const Sources& sources, double cpus) {
  if (sources.needs.threads == 1 && cpus < sources.needs.ranks)
    return "start fewer processes on this machine (lorikeet run --nproc)";
  const int each = std::max(1, static_cast<int>(std::floor(cpus / sources.needs.ranks)));
  return "export OMP_NUM_THREADS=" + std::to_string(each);
}

std::string all_threads(const RunNeeds& needs) {
  return needs.ranks == 1 ? std::to_string(needs.threads) + " threads"
                          : std::to_string(needs.ranks) + " processes of " + std::to_string(needs.threads) +
                                (needs.threads == 1 ? " thread" : " threads");
}

// The variables that have the threads bound to CPUs. libgomp binds the first one before main.
std::vector<const char*> binding_variables(const Sources& sources) {
  std::vector<const char*> names;
  for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"}) {
    const Variable* variable = find_variable(sources, name);
    if (switched_on(variable) && ascii_lower(variable->value) != "false") names.push_back(name);
  }
  return names;
}

// OpenMP's threads wait for each other by spinning unless told not to.
bool spins(const Sources& sources) {
  const Variable* policy = find_variable(sources, "OMP_WAIT_POLICY");
  const Variable* count = find_variable(sources, "GOMP_SPINCOUNT");
  constexpr int kMost = 1'000'000'000, kShort = 10'000;
  if (count != nullptr) return device::parse_decimal(count->value, kMost).value_or(kMost) > kShort;
  return policy == nullptr || (policy->value != "passive" && policy->value != "PASSIVE");
}

}  // namespace

Findings check_threads(const Sources& sources) {
  constexpr const char* kName = "threads";
  const RunNeeds& needs = sources.needs;
  const std::size_t cpus = sources.cpu.allowed;
  const auto threads = static_cast<std::size_t>(needs.threads) * static_cast<std::size_t>(needs.ranks);
  if (cpus == 0)
    return {{kName, Severity::kOk, all_threads(needs) + "; the kernel doesn't tell how many CPUs"}};
  if (const auto binding = binding_variables(sources); !binding.empty())
    return {{kName, Severity::kOk, all_threads(needs) + ", bound by " + binding[0]}};
  const std::string allowed = std::to_string(cpus) + (cpus == 1 ? " CPU" : " CPUs");
  if (threads > cpus) {
    return {{kName, Severity::kWarning,
             all_threads(needs) + " on " + allowed +
                 " wait for each other at every barrier, which can be tens of times slower",
             threads_command(sources, static_cast<double>(cpus))}};
  }
  const Variable* omp = find_variable(sources, "OMP_NUM_THREADS");
  const double cpus_each = std::min(static_cast<double>(cpus), sources.cpu.quota.value_or(1e9)) / needs.ranks;
  if (needs.threads == 1 && omp != nullptr && cpus_each >= 4) {
    // torchrun sets it to 1.
    return {{kName, needs.cuda() ? Severity::kNote : Severity::kWarning,
             shown("OMP_NUM_THREADS", *omp) + " leaves most of " + allowed +
                 " idle: reading, tokenising and everything on the CPU run on one thread",
             threads_command(sources, static_cast<double>(cpus))}};
  }
  return {{kName, Severity::kOk, all_threads(needs) + " on " + allowed}};
}

Findings check_cpu_quota(const Sources& sources) {
  constexpr const char* kName = "CPU quota";
  const RunNeeds& needs = sources.needs;
  const double threads = static_cast<double>(needs.threads) * needs.ranks;
  if (!sources.cpu.quota || *sources.cpu.quota >= threads) return {};
  const double quota = *sources.cpu.quota;
  return {{kName, Severity::kWarning,
           "this container may use " + number(quota) + " CPUs' worth of time for " + all_threads(needs) +
               ": all are stopped for the rest of each period" +
               (spins(sources) ? ", the sooner as OpenMP's threads wait by spinning" : ""),
           threads_command(sources, quota) + (spins(sources) ? " GOMP_SPINCOUNT=1000" : "")}};
}

Findings check_thread_binding(const Sources& sources) {
  if (sources.needs.ranks == 1) return {};
  Findings found;
  for (const char* name : binding_variables(sources)) {
    found.emplace_back("thread binding", Severity::kWarning,
                       shown(name, *find_variable(sources, name)) + " binds the threads of all " +
                           std::to_string(sources.needs.ranks) +
                           " processes to the same CPUs unless their launcher gives each its own",
                       drop_command(name, *find_variable(sources, name)));
  }
  return found;
}

}  // namespace lorikeet::probe
