#pragma once

#include <functional>

namespace lorikeet::apps {

/// Runs the body of a `main`, in a process whose libraries' caches are bounded, and turns what it throws into
/// a message on stderr and an exit code: an Error's own code, 1 for anything else. Standard descriptors that
/// are closed are opened before, so that no file gets their numbers and what is meant for stderr. A write
/// beyond the limit of a file's size (ulimit -f) fails and doesn't end the process.
int guarded(const std::function<int()>& body);

/// A reader of stderr that ends (`2>&1 | head`) doesn't end this process, nor those that it starts: what it
/// logs from then on is lost, its work isn't. For programs that train.
void outlive_stderr();

}  // namespace lorikeet::apps
