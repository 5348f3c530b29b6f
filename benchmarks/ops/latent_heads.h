#pragma once

#include "compare.h"

namespace lorikeet::bench {

/// Latent attention's heads, of DeepSeek-V2-Lite's sizes.
void bench_latent_heads(const Settings& settings);

}  // namespace lorikeet::bench
