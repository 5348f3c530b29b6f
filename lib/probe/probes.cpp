#include "probe/probes.h"

#include "base/error.h"
#include "probe/operators/gpu_tests.h"

namespace lorikeet::probe {

ProbeAnswer answer(const ProbeRequest& request) {
  switch (request.kind) {
    case ProbeKind::kMatmul: return probe_matmul(request);
    case ProbeKind::kTransfer: return probe_transfer(request);
    case ProbeKind::kPeerCopy: return probe_peer_copy(request);
    case ProbeKind::kAllReduce: return probe_all_reduce(request);
    case ProbeKind::kWrite: return probe_write(request);
    case ProbeKind::kOperator: return probe_operator(request);
  }
  throw Error("[probe] unknown");
}

}  // namespace lorikeet::probe
