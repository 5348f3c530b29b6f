#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <utility>

// What operators share in making their own nodes of libtorch's autograd graph. Sources only: heavy headers.
namespace lorikeet::ops {

/// A node whose backward feeds `inputs`, in that order; undefined tensors and those without a graph are fine.
template <typename Node, typename... Inputs>
std::shared_ptr<Node> make_node(const Inputs&... inputs) {
  std::shared_ptr<Node> node(new Node(), torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs...));
  return node;
}

/// Whether a graph has to be recorded for an operator over `inputs`.
template <typename... Inputs>
bool needs_graph(const Inputs&... inputs) {
  return torch::autograd::compute_requires_grad(inputs...);
}

}  // namespace lorikeet::ops
