#pragma once

#include <CLI/CLI.hpp>

namespace lorikeet::apps {

/// Throws Error when the words of the command line name no verb of `app` (nor, where a verb has verbs of its
/// own, one of those), with what was meant and the list of those there are: CLI11 would only say that one is
/// required. Options may stand first.
void require_known_verbs(const CLI::App& app, int argc, const char* const* argv);

}  // namespace lorikeet::apps
