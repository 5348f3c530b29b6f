#include "device/cpu_affinity.h"

#include <sched.h>

#include <algorithm>
#include <iterator>

namespace lorikeet::device {

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int> bind_to_cpus(const std::vector<int>& cpus) {
  std::vector<int> chosen;
  const std::vector<int> allowed = allowed_cpus();
  std::copy_if(allowed.begin(), allowed.end(), std::back_inserter(chosen),
               [&](int cpu) { return std::find(cpus.begin(), cpus.end(), cpu) != cpus.end(); });
  if (chosen.empty()) return {};
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : chosen) CPU_SET(cpu, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0 ? chosen : std::vector<int>{};
}

}  // namespace lorikeet::device
