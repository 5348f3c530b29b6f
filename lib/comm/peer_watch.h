#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/board.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace lorikeet::comm {

/// Why a run ends, and the exit code of its ranks.
struct Failure {
  std::string text;
  int exit_code = 1;
};

struct WatchOptions {
  int rank = 0;
  int world_size = 1;
  /// The process that holds the store, for messages: "rank 0", "torchrun on 10.0.0.1".
  std::string store_holder;
  /// The name of this rank's machine, and the address on which it listens for the other ranks, for messages;
  /// empty where all are on one machine.
  std::string host, address;
  /// Between two reports of a rank.
  std::chrono::milliseconds interval{500};
  /// A rank, or the store, that is silent for longer is lost.
  std::chrono::milliseconds lost_after{5000};
  /// The first report of a rank may take this long.
  std::chrono::milliseconds first_report{120'000};
  /// What the main thread has to end by itself once the run has failed.
  std::chrono::milliseconds grace{2000};
  /// Ends this process at once with an exit code.
  std::function<void(int)> end;
};

/// Watches the ranks of a run that torchrun, srun or mpirun has started, and ends this process within ten
/// seconds of a failure of any rank. The ranks report to the run's store: every rank its state twice a second
/// (beat, phase, collective), and the first one to find a failure that failure, which every rank reads.
///
/// A rank watches the next one, in a ring, and rank 0, so that the store's load grows with the number of
/// ranks only, and of any ranks that are lost at once the first is found. A failure is: an error that a rank
/// reports before it ends (`fail`); a rank that is silent (killed, stopped, its machine or network gone); a
/// rank that waits in a collective for longer than its watchdog allows; a store that is silent or gone.
///
/// Once there is a failure the collectives are aborted, and the process ends after `grace` unless its main
/// thread does so before. Two threads do this: one talks to the store, which may block it for ever, and one
/// keeps the time.
class PeerWatch {
 public:
  /// Clones `store`, since a blocked wait of the main thread would hold up a connection that they share.
  /// `state` gives this rank's state; it is called on the watch's thread until the watch ends.
  PeerWatch(const c10::intrusive_ptr<c10d::Store>& store, std::function<BoardSlot()> state,
            WatchOptions options);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  /// Calls `abort` once the run has failed, on a thread of its own: it gets the main thread out of its
  /// collectives.
  void on_failure(std::function<void()> abort);

  /// What this rank says behind the failure that ends it, from now on: how the run goes on, for one.
  void say_at_end(const std::string& text);

  /// Reports an error of this rank's own, and returns when the others have had the time to read it. The main
  /// thread ends after this.
  void fail(const Failure& failure);

  /// For a main thread that has lost another rank, in a collective or at the store: returns the failure that
  /// caused it as soon as it is found. When none is found, `otherwise` becomes the run's failure. The main
  /// thread ends after this.
  Failure wait_for_cause(const Failure& otherwise);

  /// This rank has done its part: its silence is no failure from now on. Returns when that is reported.
  void done();

 private:
  class Watcher;
  std::shared_ptr<Watcher> watcher_;
};

}  // namespace lorikeet::comm
