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

// The distance between the matrices, in bytes, where it is one and they are stored alike.
std::optional<std::int64_t> distance(const std::vector<std::unique_ptr<LinearGroup>>& groups) {
  const WeightSegment& first = segment_of(*groups.front());
  std::int64_t apart = first.bytes();
  for (std::size_t i = 1; i < groups.size(); ++i) {
    const WeightSegment& segment = segment_of(*groups[i]);
    const std::int64_t next = segment.offset_bytes - segment_of(*groups[i - 1]).offset_bytes;
    if (i == 1) apart = next;
    if (next != apart || segment.quantized != first.quantized || segment.dtype != first.dtype) return {};
  }
  return apart;
}

}  // namespace

LinearStack::LinearStack(std::vector<std::unique_ptr<LinearGroup>> experts) : experts_(std::move(experts)) {
  learns_ = std::any_of(experts_.begin(), experts_.end(), [](const auto& group) { return group->learns(); });
  if (!learns_) apart_ = distance(experts_);
}

at::Tensor LinearStack::Rows::of(const at::Tensor& all) const { return ops::part(all, 0, begin, end); }

template <typename F>
void LinearStack::for_each(const ops::Routing& routing, const ForwardContext& context, F&& f) const {
  const bool may_drop = learns_ && context.training;
  Batch all;  // what keys dropout
  if (may_drop) all = ids_of_rows(context.batch, routing.tokens);
  for (std::size_t e = 0; e < experts_.size(); ++e) {
    const std::int64_t begin = routing.begin(e), end = routing.ends[e];
    if (begin == end && !learns_) continue;
    Batch own;
    if (may_drop) {
      own.position_ids = ops::part(all.position_ids, 0, begin, end);
      own.sample_ids = ops::part(all.sample_ids, 0, begin, end);
    }
    f(Rows{e, begin, end, {.batch = own, .training = context.training, .step = context.step}});
  }
}

std::optional<ops::MatrixStack> LinearStack::at_once(const at::Tensor& rows, const ops::Routing& routing,
                                                     const UnitLoan& weights) const {
  if (!apart_) return {};
  const MatrixPlace& place = experts_.front()->weights().weight;
  ops::MatrixStack stack{.first = place.of(weights),
                         .bytes = {},
                         .apart = *apart_,
                         .count = std::ssize(experts_)};
  if (!ops::groups_products(rows, routing, stack)) return {};
  stack.bytes = weights.matrices.narrow(0, segment_of(*experts_.front()).offset_bytes,
                                        (stack.count - 1) * *apart_ + stack.first.bytes.numel());
  stack.bias = biases();
  return stack;
}

void LinearStack::forward(at::Tensor& out, const at::Tensor& x, const UnitLoan& weights,
                          const ForwardContext& context, const ops::Routing& routing,
                          std::vector<LinearKept>* kept) const {
  if (kept != nullptr) kept->resize(experts_.size());
  if (const auto stack = at_once(x, routing, weights)) {
    ops::grouped_forward(out, x, routing, *stack);
    return;
  }
  for_each(routing, context, [&](const Rows& own) {
    experts_[own.expert]->forward(own.of(x), weights, own.context,
                                  kept != nullptr ? &kept->at(own.expert) : nullptr, nullptr, own.of(out));
  });
}

std::vector<ops::LoraLinearGradients> LinearStack::backward(at::Tensor& dx, const at::Tensor& dy,
                                                            const UnitLoan& weights,
                                                            const ForwardContext& context,
                                                            const ops::Routing& routing,
                                                            std::vector<LinearKept>& kept) const {
  std::vector<ops::LoraLinearGradients> gradients(experts_.size());
  if (!dx.defined() && !learns_) return gradients;
  if (const auto stack = at_once(dy, routing, weights)) {
    ops::grouped_backward(dx, dy, routing, *stack);
    return gradients;
  }
  for_each(routing, context, [&](const Rows& own) {
    ops::LoraLinearGradients& of_expert = gradients[own.expert];
    of_expert =
        experts_[own.expert]->backward(own.of(dy), weights, own.context, kept.at(own.expert), dx.defined(),
                                       nullptr, dx.defined() ? own.of(dx) : at::Tensor());
    of_expert.dx.reset();
    kept[own.expert] = {};
  });
  return gradients;
}

void LinearStack::add_a_gradients(const std::vector<ops::LoraLinearGradients>& gradients,
                                  const at::Tensor& x, const ForwardContext& context,
                                  const ops::Routing& routing) const {
  for_each(routing, context, [&](const Rows& own) {
    if (gradients[own.expert].want_input())
      experts_[own.expert]->add_a_gradients(gradients[own.expert], own.of(x), own.context);
  });
}

at::Tensor LinearStack::biases() const {
  std::vector<at::Tensor> biases;
  biases.reserve(experts_.size());
  for (const auto& expert : experts_) biases.push_back(expert->weights().bias());
  return biases.front().defined() ? at::stack(biases) : at::Tensor();
}

}  // namespace lorikeet::nn
