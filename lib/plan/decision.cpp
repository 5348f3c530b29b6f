#include "plan/decision.h"

#include <algorithm>

#include "base/strings.h"

namespace lorikeet::plan {
namespace {

constexpr double kCarries = 0.1;  // of a step's time may be waited for
constexpr double kPercent = 100;

std::string bytes(double count) { return format_bytes(static_cast<std::uint64_t>(count)); }
std::string bytes(std::int64_t count) { return format_bytes(static_cast<std::uint64_t>(count)); }

std::string seconds(double value) {
  if (value < 0.1) return format_number("%.1f ms", 1e3 * value);
  return format_number(value < 10 ? "%.2f s" : "%.0f s", value);
}
std::string percent(double part) { return format_number("%.0f%%", kPercent * part); }
std::string times(double ratio) { return format_number("%.2fx", ratio); }

std::string devices(int count) { return count == 1 ? "one device" : std::to_string(count) + " devices"; }

std::string how(const Choice& choice) {
  return "micro-batches of " + std::to_string(choice.micro_tokens) + " tokens" +
         (choice.saving == config::MemorySaving{} ? "" : " and " + config::overrides({}, choice.saving));
}

std::string need_of(const Option& option) {
  return bytes(option.memory.total()) + " of " + bytes(option.available);
}

// Of those that satisfy `accept` the one that needs least beyond what there is.
template <typename Accept>
const Option* nearest_to_fitting(const std::vector<Option>& options, const Accept& accept) {
  const Option* nearest = nullptr;
  const auto over = [](const Option& option) { return option.memory.total() - option.available; };
  for (const Option& option : options) {
    if (accept(option) && (nearest == nullptr || over(option) < over(*nearest))) nearest = &option;
  }
  return nearest;
}

struct Context {
  const std::vector<Option>& options;
  const Machine& machine;
  const Work& work;
  std::int64_t usual;
  int most;  // devices

  const Option* best(const std::function<bool(const Option&)>& accept) const {
    return fastest(options, usual, accept);
  }
  // The option to talk about: the fastest that fits, else the one nearest to it.
  const Option* example(const std::function<bool(const Option&)>& accept) const {
    const Option* found = best(accept);
    return found != nullptr ? found : nearest_to_fitting(options, accept);
  }
  std::string rate(int count) const {
    return format_number("%.3g GB/s", machine.link(count).bytes_per_second / 1e9);
  }
};

Question fits_on_one(const Context& in, const Option* on_one) {
  Question asked{.question = "Does it fit on one device?", .answer = on_one != nullptr};
  const auto alone = [](const Option& option) { return option.choice.devices == 1; };
  if (on_one != nullptr) {
    asked.because = need_of(*on_one) + " with " + how(on_one->choice);
    const config::MemorySaving none;
    const auto plain = [&](const Option& option) { return alone(option) && option.choice.saving == none; };
    const Option* nearest = nearest_to_fitting(in.options, plain);
    if (on_one->choice.saving != none && nearest != nullptr && !nearest->fits())
      asked.because += "; without it at least " + need_of(*nearest);
    return asked;
  }
  const Option* nearest = nearest_to_fitting(in.options, alone);
  asked.because = "at least " + need_of(*nearest) + " are needed, " + bytes(nearest->memory.held()) +
                  " of them for weights, adapter and optimizer";
  const std::int64_t host = nearest->memory.host_total();
  if (nearest->host_available > 0 && host > nearest->host_available)
    asked.because += "; beside the device, " + bytes(host) + " of the host's memory, which offers " +
                     bytes(nearest->host_available) + " (--host-memory)";
  return asked;
}

Question carries_adapter(const Context& in) {
  const Option& option =
      *in.example([&](const Option& o) { return o.choice.devices == in.most && o.choice.degree == 1; });
  const double waited = option.time.reduce / option.time.total();
  return {.question = "Does the link carry the adapter's gradients?",
          .answer = waited < kCarries,
          .because = bytes(in.work.gradient_bytes) + " a step at " + in.rate(in.most) + ": " +
                     seconds(option.time.reduce) + " waited of a step of " + seconds(option.time.total()) +
                     " (" + percent(waited) + ")"};
}

// `option`: with one copy of the base on all devices.
Question carries_base(const Context& in, const Option& option) {
  const double waited = option.time.gather / option.time.total();
  double gathered = 0;
  for (const UnitUse& use : in.work.uses) gathered += use.gathered_bytes;
  return {.question = "Does the link carry the base?",
          .answer = waited < kCarries,
          .because = bytes(gathered) + " for each of " + format_number("%.3g", option.turns) +
                     " micro-batches a step at " + in.rate(in.most) + ": " + seconds(option.time.gather) +
                     " waited of a step of " + seconds(option.time.total()) + " (" + percent(waited) +
                     ") with " + how(option.choice)};
}

Question beats_one(const Context& in, const Option* on_one) {
  Question asked{.question = "Do " + devices(in.most) + " beat one?"};
  const Option* best = in.best([&](const Option& option) { return option.choice.devices == in.most; });
  if (best == nullptr) {
    const Option* nearest = nearest_to_fitting(
        in.options, [&](const Option& option) { return option.choice.devices == in.most; });
    asked.because = "they can't hold it either: " + nearest->choice.strategy() + " needs at least " +
                    need_of(*nearest) + " on each";
    return asked;
  }
  if (on_one == nullptr) {
    asked.answer = true;
    asked.because = "one can't hold it; with " + best->choice.strategy() + " each needs " + need_of(*best);
    return asked;
  }
  const double ratio = best->tokens_per_second / on_one->tokens_per_second;
  asked.answer = ratio > 1;
  asked.because = times(ratio) + " with " + best->choice.strategy() + ", " + percent(ratio / in.most) +
                  " of what so many could do";
  if (in.machine.shared) asked.because += "; they share the cores of one machine";
  return asked;
}

std::string sentence(const Decision& decision) {
  if (decision.best == nullptr) return "none of these fits: take devices with more memory, or a smaller base";
  const Option& best = *decision.best;
  std::string text = "train on " + devices(best.choice.devices);
  if (best.choice.devices > 1) text += " with " + best.choice.strategy();
  text += ", " + how(best.choice);
  if (best.choice.devices > 1 && decision.on_one != nullptr)
    text += ": " + times(best.tokens_per_second / decision.on_one->tokens_per_second) + " of one";
  if (best.choice.devices > 1 && best.cost_per_million && decision.on_one != nullptr)
    text += format_number("; a million tokens cost %.3g", *best.cost_per_million) +
            format_number(" against %.3g", *decision.on_one->cost_per_million);
  return text;
}

}  // namespace

Decision decide(const std::vector<Option>& options, const Machine& machine, const Work& work,
                std::int64_t usual_micro_tokens) {
  int most = 1;
  for (const Option& option : options) most = std::max(most, option.choice.devices);
  const Context in{options, machine, work, usual_micro_tokens, most};
  Decision decision;
  decision.on_one = in.best([](const Option& option) { return option.choice.devices == 1; });
  decision.best = in.best([](const Option&) { return true; });
  decision.questions.push_back(fits_on_one(in, decision.on_one));
  if (most > 1) {
    decision.questions.push_back(carries_adapter(in));
    const auto shares = [&](const Option& o) { return o.choice.devices == most && o.choice.degree == most; };
    if (const Option* shared = in.example(shares)) decision.questions.push_back(carries_base(in, *shared));
    decision.questions.push_back(beats_one(in, decision.on_one));
  }
  decision.verdict = sentence(decision);
  return decision;
}

}  // namespace lorikeet::plan
