#pragma once

#include <vector>

namespace lorikeet::device {

/// The CPUs that the calling thread may run on, ascending.
std::vector<int> allowed_cpus();

/// Binds the calling thread, and all threads that it starts from now on, to those of `cpus` that it may run
/// on. Returns them; empty, with nothing changed, where it may run on none of them or the kernel refuses.
std::vector<int> bind_to_cpus(const std::vector<int>& cpus);

}  // namespace lorikeet::device
