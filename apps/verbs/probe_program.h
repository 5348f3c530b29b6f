#pragma once

#include "probe/active.h"

namespace lorikeet::apps {

/// This program as the child of a probe.
probe::ProbeProgram probe_program();

}  // namespace lorikeet::apps
