#include "trace/step_trace.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <cstdlib>
#include <exception>
#include <set>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/temporary.h"

namespace lorikeet::trace {
namespace {

using torch::profiler::impl::ActivityType;

std::set<ActivityType> activities(bool cuda) {
  std::set<ActivityType> all{ActivityType::CPU};
  if (cuda) all.insert(ActivityType::CUDA);
  return all;
}

}  // namespace

StepTrace::StepTrace(bool cuda) {
  // Without a GPU the profiler's library complains of there being none.
  constexpr int kKeepWhatIsSet = 0;
  setenv("KINETO_LOG_LEVEL", "5", kKeepWhatIsSet);
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO,
                                                     /*report_input_shapes=*/true);
  torch::autograd::profiler::prepareProfiler(config, activities(cuda));
  torch::autograd::profiler::enableProfiler(config, activities(cuda));
}

StepTrace::~StepTrace() {
  if (!running_) return;
  try {
    torch::autograd::profiler::disableProfiler();
  } catch (const std::exception& error) {  // what ended the recording early is the news
    log_warning(std::string("a trace is lost: ") + error.what());
  }
}

void StepTrace::save(const std::filesystem::path& path) {
  running_ = false;
  const auto result = torch::autograd::profiler::disableProfiler();
  // Whole or not at all: the profiler's library writes bit by bit, and tells of no failure.
  const std::filesystem::path aside = temporary_beside(path);
  std::error_code error;
  result->save(aside.string());
  std::filesystem::rename(aside, path, error);
  if (!error) return;
  std::error_code ignored;
  std::filesystem::remove(aside, ignored);
  throw Error("[trace] can't write '" + path.string() + "': " + error.message(), ErrorKind::kEnvironment);
}

}  // namespace lorikeet::trace
