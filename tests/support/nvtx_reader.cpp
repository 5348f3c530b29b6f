// A tool that reads NVTX, as Nsight Systems does: loaded by NVTX into any program whose environment names it
// in NVTX_INJECTION64_PATH, it writes every range to stderr, "nvtx begin forward" and "nvtx end".
#include <nvtx3/nvToolsExt.h>

#include <cstdio>

namespace {

int begin(const char* name) {
  std::fprintf(stderr, "nvtx begin %s\n", name);
  return 0;
}

int end() {
  std::fprintf(stderr, "nvtx end\n");
  return 0;
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0)
    return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(begin);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(end);
  return 1;
}
