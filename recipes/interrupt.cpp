#include "recipes/interrupt.h"

#include <csignal>

namespace lorikeet::recipes {
namespace {

volatile std::sig_atomic_t g_requested = 0;

void on_signal(int signal) {
  g_requested = 1;
  std::signal(signal, SIG_DFL);  // the next one acts as usual
}

}  // namespace

InterruptGuard::InterruptGuard() {
  g_requested = 0;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

bool InterruptGuard::requested() { return g_requested != 0; }

}  // namespace lorikeet::recipes
