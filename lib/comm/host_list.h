#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lorikeet::comm {

/// The host names of a Slurm node list such as "gpu[01-03,07],login1" (SLURM_JOB_NODELIST), in order: leading
/// zeros are kept, several brackets in a name multiply. Throws Error for a malformed list and for one of more
/// than 100,000 hosts.
std::vector<std::string> parse_host_list(std::string_view list);

}  // namespace lorikeet::comm
