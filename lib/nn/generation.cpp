#include "nn/generation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/philox.h"
#include "nn/batch.h"
#include "nn/kv_cache.h"

namespace lorikeet::nn {
namespace {

// Draws from the smallest set of tokens whose probability reaches top_p. `logits` are fp32 (the policy's loss
// dtype) on the CPU.
std::int32_t sample(const at::Tensor& logits, const GenerationOptions& options, float uniform) {
  const at::Tensor probabilities = at::softmax(logits / options.temperature, -1);
  const auto [sorted, order] = probabilities.sort(/*stable=*/true, -1, /*descending=*/true);
  const float* p = sorted.const_data_ptr<float>();
  const std::int64_t* ids = order.const_data_ptr<std::int64_t>();
  std::int64_t count = 0;
  double mass = 0;
  while (count < sorted.numel() && (count == 0 || mass < options.top_p)) mass += p[count++];
  double left = uniform * mass;
  std::int64_t i = 0;
  while (i + 1 < count && left >= p[i]) left -= p[i++];
  return static_cast<std::int32_t>(ids[i]);
}

void require_finite(bool is_finite) {
  if (is_finite) return;
  throw Error(
      "[generate] expected finite logits, got NaN or infinite ones: the base or the adapter holds such "
      "numbers, or too large ones for the precision; check the base's files against their source",
      ErrorKind::kRunFailed);
}

// The next token of each row of `logits`; `prompt_of` maps rows to prompts, which key the random numbers.
std::vector<std::int32_t> choose(const at::Tensor& logits, const std::vector<std::int64_t>& prompt_of,
                                 const std::vector<std::int64_t>& positions,
                                 const GenerationOptions& options) {
  at::Tensor candidates = logits;
  if (options.vocab_size > 0 && options.vocab_size < logits.size(1))
    candidates = logits.narrow(1, 0, options.vocab_size);
  std::vector<std::int32_t> next;
  if (options.temperature == 0) {
    const at::Tensor best =
        at::where(at::isfinite(candidates.amax(1)), candidates.argmax(1), at::Scalar(-1)).cpu();
    for (std::int64_t r = 0; r < best.numel(); ++r) {
      next.push_back(static_cast<std::int32_t>(best.const_data_ptr<std::int64_t>()[r]));
      require_finite(next.back() >= 0);
    }
    return next;
  }
  const at::Tensor host = candidates.cpu().contiguous();
  require_finite(at::isfinite(host.amax(1)).all().item<bool>());
  for (std::int64_t r = 0; r < host.size(0); ++r) {
    const auto row = static_cast<std::size_t>(r);
    PhiloxStream stream(options.seed, "generate/" + std::to_string(options.first_prompt + prompt_of[row]) +
                                          "/" + std::to_string(positions[row]));
    next.push_back(sample(host[r], options, stream.uniform()));
  }
  return next;
}

}  // namespace

std::vector<std::vector<std::int32_t>> generate(const CausalLM& model,
                                                const std::vector<std::vector<std::int32_t>>& prompts,
                                                const GenerationOptions& options, const at::Device& device) {
  std::vector<std::vector<std::int32_t>> results(prompts.size());
  if (prompts.empty() || options.max_new_tokens <= 0) return results;
  KvCache cache(model.shape().layers, static_cast<std::int64_t>(prompts.size()));
  std::vector<std::int64_t> prompt_of(prompts.size());  // of each sequence still running
  std::iota(prompt_of.begin(), prompt_of.end(), 0);
  std::vector<std::int64_t> lengths;
  lengths.reserve(prompts.size());
  for (const auto& prompt : prompts) lengths.push_back(static_cast<std::int64_t>(prompt.size()));

  const auto whole = [&](std::int64_t prompt) {
    std::vector<std::int32_t> tokens = prompts[static_cast<std::size_t>(prompt)];
    const auto& answer = results[static_cast<std::size_t>(prompt)];
    tokens.insert(tokens.end(), answer.begin(), answer.end());
    return tokens;
  };

  Batch batch = pack_sequences(prompts, {}, device);
  for (std::int64_t n = 0; n < options.max_new_tokens; ++n) {
    std::vector<std::int64_t> last_rows;
    for (std::size_t s = 0; s + 1 < batch.sequences.cu_seqlens.size(); ++s) {
      last_rows.push_back(batch.sequences.cu_seqlens[s + 1] - 1);
    }
    const ForwardContext context{.batch = batch, .cache = &cache};
    const at::Tensor logits = model.logits(context, at::tensor(last_rows).to(device));
    const auto next = choose(logits, prompt_of, lengths, options);

    std::vector<std::int64_t> running, still_of, still_lengths, first_positions;
    std::vector<std::vector<std::int32_t>> inputs;
    for (std::size_t s = 0; s < next.size(); ++s) {
      if (std::find(options.stop_ids.begin(), options.stop_ids.end(), next[s]) != options.stop_ids.end())
        continue;
      results[static_cast<std::size_t>(prompt_of[s])].push_back(next[s]);
      running.push_back(static_cast<std::int64_t>(s));
      still_of.push_back(prompt_of[s]);
      still_lengths.push_back(lengths[s] + 1);
      if (model.cache_switch_length() == lengths[s]) {
        // The new token makes all angles others: its sequence starts again with an empty cache.
        cache.clear(static_cast<std::int64_t>(s));
        inputs.push_back(whole(prompt_of[s]));
        first_positions.push_back(0);
      } else {
        inputs.push_back({next[s]});
        first_positions.push_back(lengths[s]);
      }
    }
    if (running.empty()) break;
    if (running.size() != next.size()) cache.keep(running);
    prompt_of = std::move(still_of);
    batch = pack_sequences(inputs, first_positions, device);
    lengths = std::move(still_lengths);
  }
  return results;
}

}  // namespace lorikeet::nn
