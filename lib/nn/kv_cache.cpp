#include "nn/kv_cache.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace lorikeet::nn {
namespace {

// Appends `rows` to the first `length` rows of `buffer`, growing it when it is full.
void append_rows(at::Tensor& buffer, std::int64_t length, const at::Tensor& rows) {
  const std::int64_t needed = length + rows.size(0);
  if (!buffer.defined() || buffer.size(0) < needed) {
    const std::int64_t capacity = std::max<std::int64_t>({needed, 2 * length, 64});
    at::Tensor grown = at::empty({capacity, rows.size(1), rows.size(2)}, rows.options());
    if (length > 0) grown.narrow(0, 0, length).copy_(buffer.narrow(0, 0, length));
    buffer = std::move(grown);
  }
  buffer.narrow(0, length, rows.size(0)).copy_(rows);
}

}  // namespace

at::Tensor RecurrentState::move_on(const at::Tensor& next, std::int64_t count) {
  at::Tensor before = rows.defined() ? rows : at::zeros({count, next.size(1)}, next.options());
  rows = at::cat({before, next}).slice(0, next.size(0)).clone();
  return before;
}

KvCache::KvCache(std::int64_t layers, std::int64_t sequences)
    : entries_(static_cast<std::size_t>(layers), std::vector<Entry>(static_cast<std::size_t>(sequences))) {}

void KvCache::append(std::int64_t layer, const at::Tensor& k, const at::Tensor& v,
                     const std::vector<std::int32_t>& cu) {
  std::vector<Entry>& of_layer = entries_[static_cast<std::size_t>(layer)];
  for (std::size_t s = 0; s < of_layer.size(); ++s) {
    const std::int64_t begin = cu[s], count = cu[s + 1] - begin;
    Entry& e = of_layer[s];
    append_rows(e.k, e.length, k.narrow(0, begin, count));
    append_rows(e.v, e.length, v.narrow(0, begin, count));
    e.length += count;
  }
}

std::vector<at::Tensor> KvCache::rows(std::int64_t layer, at::Tensor Entry::*of) const {
  std::vector<at::Tensor> views;
  for (const Entry& e : entries_[static_cast<std::size_t>(layer)])
    views.push_back((e.*of).narrow(0, 0, e.length));
  return views;
}

std::vector<RecurrentState*> KvCache::recurrent(std::int64_t layer) {
  std::vector<RecurrentState*> states;
  for (Entry& e : entries_[static_cast<std::size_t>(layer)]) states.push_back(&e.recurrent);
  return states;
}

void KvCache::clear(std::int64_t sequence) {
  for (auto& layer : entries_) layer[static_cast<std::size_t>(sequence)] = {};
}

void KvCache::keep(const std::vector<std::int64_t>& sequences) {
  for (auto& layer : entries_) {
    std::vector<Entry> kept;
    kept.reserve(sequences.size());
    for (const std::int64_t s : sequences) kept.push_back(std::move(layer[static_cast<std::size_t>(s)]));
    layer = std::move(kept);
  }
}

}  // namespace lorikeet::nn
