#pragma once

#include <functional>

namespace lorikeet::apps {

/// Runs the body of a `main` and turns what it throws into a message on stderr and an exit code:
/// an Error's own code, 1 for anything else.
int guarded(const std::function<int()>& body);

}  // namespace lorikeet::apps
