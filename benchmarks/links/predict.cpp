// Reads jobs, a JSON object a line, and writes what lib/plan's formula says of each: the seconds of a step.
// Used by run.py beside measurements, and for docs/distributed.md's table.
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "plan/step_time.h"
#include "train/flops.h"

namespace {

using namespace lorikeet;

plan::StepTime predict(const JsonView& job) {
  const auto integer = [&](const char* key) { return job.at(key).as_int(); };
  const auto number = [&](const char* key) { return job.at(key).as_number(); };
  nn::ModelShape shape;
  shape.layers = integer("layers");
  shape.hidden_size = integer("hidden_size");
  shape.heads = integer("heads");
  shape.head_dim = integer("head_dim");
  shape.vocab_size = integer("vocab_size");
  shape.layer_linear_parameters = integer("layer_linear_parameters");
  const train::StepSize size{integer("tokens"), integer("label_tokens"),
                             shape.layers * integer("squared_lengths")};
  const train::AdapterSize adapter{.trained = integer("adapter_parameters")};
  const double flops = train::step_flops(shape, adapter, size);
  const train::StepSize without_labels{size.tokens, 0, size.attention_squares};
  const double head = flops - train::step_flops(shape, adapter, without_labels);
  const plan::StoredBytes stored{.table = number("storage_bytes"), .linear = number("storage_bytes")};
  return plan::step_time({.flops = flops,
                          .device_flops = number("device_flops"),
                          .world_size = static_cast<int>(integer("world_size")),
                          .degree = static_cast<int>(integer("degree")),
                          .turns = static_cast<double>(integer("turns")),
                          .gradient_bytes = 4.0 * static_cast<double>(integer("adapter_parameters")),
                          .uses = plan::unit_uses(shape, stored, head / flops),
                          .reduce_link = {number("reduce_bytes_per_second"), number("latency_seconds")},
                          .gather_link = {number("gather_bytes_per_second"), number("latency_seconds")},
                          .seconds_per_byte = number("seconds_per_byte")});
}

}  // namespace

int main() {
  try {
    for (std::string line; std::getline(std::cin, line);) {
      const Json job = Json::parse(line, "stdin");
      const plan::StepTime time = predict(JsonView(job, "stdin"));
      std::cout << Json()
                       .set("compute", time.compute)
                       .set("gather", time.gather)
                       .set("reduce", time.reduce)
                       .set("total", time.total())
                       .dump()
                << "\n";
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
