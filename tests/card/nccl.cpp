// NCCL's place taken by Gloo over the cards' memory. A collective works on a stream of its communicator's
// own, which waits for the current stream at its start; the current stream waits for it in wait(), as with
// NCCL. Linked instead of lib/comm/nccl.cpp.
#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

#include "card/alias.h"
#include "card/streams.h"
#include "comm/backends.h"

namespace lorikeet::comm {
namespace {

using card::StreamKey;

class CardCommunicator final : public Communicator {
 public:
  CardCommunicator(std::unique_ptr<Communicator> gloo, int card, const CommunicatorOptions& options)
      : Communicator(gloo->rank(), gloo->size(), options),
        gloo_(std::move(gloo)),
        stream_(card::new_stream(card)) {}

 protected:
  Wait start_all_reduce(at::Tensor& tensor) override {
    begin(tensor, /*writes=*/true, "all-reduce");
    return waiting(gloo_->all_reduce(card::as_cpu(tensor)));
  }
  Wait start_all_gather(at::Tensor& out, at::Tensor& in) override {
    begin(in, /*writes=*/false, "all-gather");
    begin(out, /*writes=*/true, "all-gather");
    return waiting(gloo_->all_gather(card::as_cpu(out), card::as_cpu(in)));
  }
  Wait start_broadcast(at::Tensor& tensor, int root) override {
    begin(tensor, /*writes=*/rank() != root, "broadcast");
    return waiting(gloo_->broadcast(card::as_cpu(tensor), root));
  }

 private:
  StreamKey callers_stream() const { return card::current_stream(card::card_of(stream_)); }

  void begin(const at::Tensor& tensor, bool writes, const char* collective) const {
    card::wait_for_event(stream_, card::record_event(callers_stream()));
    card::note_access(tensor.storage().data(), writes, stream_, collective);
  }

  Wait waiting(Pending pending) const {
    return [this, pending = std::move(pending)]() mutable {
      pending.wait();
      card::wait_for_event(callers_stream(), card::record_event(stream_));
    };
  }

  std::unique_ptr<Communicator> gloo_;
  StreamKey stream_;
};

}  // namespace

std::unique_ptr<Communicator> join_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                        const at::Device& device, const CommunicatorOptions& options) {
  CommunicatorOptions own = options;
  own.observer = nullptr;  // the card's communicator reports and counts
  own.ledger = nullptr;
  return std::make_unique<CardCommunicator>(join_gloo(store, rank, size, own), device.index(), options);
}

}  // namespace lorikeet::comm
