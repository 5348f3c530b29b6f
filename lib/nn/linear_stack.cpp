#include "nn/linear_stack.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "nn/batch.h"
#include "nn/output_rows.h"
#include "ops/part.h"

namespace lorikeet::nn {
namespace {

const WeightSegment& segment_of(const LinearGroup& group) {
  const MatrixPlace& place = group.weights().weight;
  return place.unit->segments().at(place.segment);
}

// The distance between the matrices, in bytes, where it is one number and they are stored alike. That of a
// single one, which nobody computes together with others, is none.
std::optional<std::int64_t> distance(const std::vector<std::unique_ptr<LinearGroup>>& groups) {
  const WeightSegment& first = segment_of(*groups.front());
  std::optional<std::int64_t> apart;
  for (std::size_t i = 1; i < groups.size(); ++i) {
    const WeightSegment& segment = segment_of(*groups[i]);
    const std::int64_t next = segment.offset_bytes - segment_of(*groups[i - 1]).offset_bytes;
    if (!apart) apart = next;
    if (next != *apart || segment.quantized != first.quantized || segment.dtype != first.dtype) return {};
  }
  return apart;
}

bool lie_alike(const at::Tensor& one, const at::Tensor& other) {
  return one.defined() && one.is_alias_of(other) && one.storage_offset() == other.storage_offset();
}

}  // namespace

LinearStack::LinearStack(std::vector<std::unique_ptr<LinearGroup>> experts) : experts_(std::move(experts)) {
  learns_ = std::any_of(experts_.begin(), experts_.end(), [](const auto& group) { return group->learns(); });
  apart_ = distance(experts_);
}

bool StackGradients::want_input() const {
  return low_rank.defined() || std::any_of(of_experts.begin(), of_experts.end(),
                                           [](const auto& expert) { return expert.want_input(); });
}

at::Tensor LinearStack::Rows::of(const at::Tensor& all) const { return ops::part(all, 0, begin, end); }

template <typename F>
void LinearStack::for_each(const ops::Routing& routing, const ForwardContext& context, F&& f) const {
  const bool may_drop = learns_ && context.training;
  Batch all;  // what keys dropout
  if (may_drop) all = ids_of_rows(context.batch, routing.tokens);
  const std::vector<std::int64_t>& ends = routing.host_ends();
  for (std::size_t e = 0; e < experts_.size(); ++e) {
    const std::int64_t begin = e == 0 ? 0 : ends[e - 1], end = ends[e];
    if (begin == end && !learns_) continue;
    Batch own;
    if (may_drop) {
      own.position_ids = ops::part(all.position_ids, 0, begin, end);
      own.sample_ids = ops::part(all.sample_ids, 0, begin, end);
    }
    f(Rows{e, begin, end, {.batch = own, .training = context.training, .step = context.step}});
  }
}

std::optional<ops::MatrixStack> LinearStack::matrices(const UnitLoan& weights) const {
  if (!apart_) return {};
  const MatrixPlace& place = experts_.front()->weights().weight;
  ops::MatrixStack stack{
      .first = place.of(weights), .bytes = {}, .apart = *apart_, .count = std::ssize(experts_)};
  stack.bytes = weights.matrices.narrow(0, segment_of(*experts_.front()).offset_bytes,
                                        (stack.count - 1) * *apart_ + stack.first.bytes.numel());
  return stack;
}

const ops::StackedUpdates* LinearStack::updates(const ForwardContext& context) const {
  const auto first = experts_.front()->plain_updates(context);
  if (!first || first->empty()) return nullptr;
  if (!lie_alike(updates_.of, first->front().a)) {
    std::vector<std::vector<ops::LoraProjection>> all;
    all.reserve(experts_.size());
    for (const auto& expert : experts_)
      all.push_back(expert->plain_updates(context).value_or(std::vector<ops::LoraProjection>()));
    updates_ = {first->front().a, ops::stack_updates(all)};
  }
  return updates_.stacked ? &*updates_.stacked : nullptr;
}

void LinearStack::forward(at::Tensor& out, const at::Tensor& x, const UnitLoan& weights,
                          const ForwardContext& context, const ops::Routing& routing,
                          std::vector<LinearKept>* kept) const {
  const ops::StackedUpdates* const updates = learns_ ? this->updates(context) : nullptr;
  if (!learns_ || updates != nullptr) {
    auto stack = matrices(weights);
    if (stack && ops::groups_products(x, *stack)) {
      stack->bias = biases();
      at::Tensor low_rank;
      if (updates != nullptr) {
        low_rank = ops::grouped_lora_forward(out, x, routing, *stack, *updates);
      } else {
        ops::grouped_forward(out, x, routing, *stack);
      }
      if (kept != nullptr) *kept = {{.low_rank = std::move(low_rank), .product = {}}};
      return;
    }
  }
  if (kept != nullptr) kept->assign(experts_.size(), {});
  for_each(routing, context, [&](const Rows& own) {
    experts_[own.expert]->forward(own.of(x), weights, own.context,
                                  kept != nullptr ? &kept->at(own.expert) : nullptr, nullptr, own.of(out));
  });
}

StackGradients LinearStack::backward(at::Tensor& dx, const at::Tensor& dy, const UnitLoan& weights,
                                     const ForwardContext& context, const ops::Routing& routing,
                                     std::vector<LinearKept>& kept) const {
  StackGradients gradients;
  if (!dx.defined() && !learns_) return gradients;
  if (kept.size() < experts_.size()) {
    const auto stack = matrices(weights);
    if (learns_) {
      const ops::StackedUpdates& updates = *this->updates(context);
      gradients.low_rank =
          ops::grouped_lora_backward(dx, dy, kept.front().low_rank, routing, *stack, updates);
      if (!updates.grad_a.defined()) gradients.low_rank.reset();
    } else {
      ops::grouped_backward(dx, dy, routing, *stack);
    }
    kept.clear();
    return gradients;
  }
  gradients.of_experts.resize(experts_.size());
  for_each(routing, context, [&](const Rows& own) {
    ops::LoraLinearGradients& of_expert = gradients.of_experts[own.expert];
    of_expert =
        experts_[own.expert]->backward(own.of(dy), weights, own.context, kept.at(own.expert), dx.defined(),
                                       nullptr, dx.defined() ? own.of(dx) : at::Tensor());
    of_expert.dx.reset();
    kept[own.expert] = {};
  });
  return gradients;
}

void LinearStack::add_a_gradients(const StackGradients& gradients, const at::Tensor& x,
                                  const ForwardContext& context, const ops::Routing& routing) const {
  if (gradients.low_rank.defined()) {
    ops::grouped_a_gradients(gradients.low_rank, x, routing, *updates(context));
    return;
  }
  if (!gradients.want_input()) return;
  for_each(routing, context, [&](const Rows& own) {
    if (gradients.of_experts[own.expert].want_input())
      experts_[own.expert]->add_a_gradients(gradients.of_experts[own.expert], own.of(x), own.context);
  });
}

at::Tensor LinearStack::biases() const {
  std::vector<at::Tensor> biases;
  biases.reserve(experts_.size());
  for (const auto& expert : experts_) biases.push_back(expert->weights().bias());
  return biases.front().defined() ? at::stack(biases) : at::Tensor();
}

}  // namespace lorikeet::nn
