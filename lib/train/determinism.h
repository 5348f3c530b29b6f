#pragma once

namespace lorikeet::train {

/// training.deterministic: libtorch's operators give the same bits in each run, or throw where they can't.
/// cuBLAS does by itself, since libtorch gives each of its streams a workspace of its own. Libtorch would
/// then also fill all memory that a tensor is made in, which finds reads of uninitialised memory and costs a
/// write of every tensor: that stays off, our tests poison memory themselves.
void set_deterministic(bool on);

}  // namespace lorikeet::train
