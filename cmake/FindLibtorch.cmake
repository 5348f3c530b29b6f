# libtorch from the torch wheel in LORIKEET_VENV, as two imported targets:
#   lorikeet::torch_cpu   what CPU code compiles and links against
#   lorikeet::torch_cuda  adds the CUDA half (kept by the linker although nothing names its symbols)
# The wheel's own TorchConfig.cmake is slow, needs nvcc and adds flags to every target.
file(GLOB _site "${LORIKEET_VENV}/lib/python3*/site-packages")
find_path(LIBTORCH_ROOT NAMES lib/libtorch_cpu.so PATHS "${_site}/torch" NO_DEFAULT_PATH
  DOC "The folder of the torch wheel")
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch REQUIRED_VARS LIBTORCH_ROOT
  REASON_FAILURE_MESSAGE "no torch wheel in ${LORIKEET_VENV}: run scripts/setup, or set LORIKEET_VENV")

if(LIBTORCH_ROOT AND NOT TARGET lorikeet::torch_cpu)
  get_filename_component(LIBTORCH_SITE "${LIBTORCH_ROOT}" DIRECTORY)
  add_library(lorikeet::torch_cpu INTERFACE IMPORTED)
  set_target_properties(lorikeet::torch_cpu PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES
      "${LIBTORCH_ROOT}/include;${LIBTORCH_ROOT}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO"
    # at::parallel_for is a header template: without OpenMP here it would run serially, silently.
    INTERFACE_COMPILE_OPTIONS "$<$<COMPILE_LANGUAGE:CXX>:-fopenmp>"
    INTERFACE_LINK_LIBRARIES
      "${LIBTORCH_ROOT}/lib/libtorch_cpu.so;${LIBTORCH_ROOT}/lib/libc10.so;${LIBTORCH_ROOT}/lib/libgomp.so.1"
    INTERFACE_LINK_OPTIONS "-Wl,-rpath,${LIBTORCH_ROOT}/lib")

  set(_cuda "${LIBTORCH_SITE}/nvidia/cu13")
  add_library(lorikeet::torch_cuda INTERFACE IMPORTED)
  set_target_properties(lorikeet::torch_cuda PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES
      "${_cuda}/include;${LIBTORCH_SITE}/nvidia/nccl/include;${LIBTORCH_SITE}/nvidia/cudnn/include"
    INTERFACE_COMPILE_DEFINITIONS "USE_C10D_NCCL"
    INTERFACE_LINK_LIBRARIES
      "lorikeet::torch_cpu;-Wl,--push-state,--no-as-needed;${LIBTORCH_ROOT}/lib/libtorch_cuda.so;${LIBTORCH_ROOT}/lib/libc10_cuda.so;-Wl,--pop-state;${_cuda}/lib/libcudart.so.13"
    INTERFACE_LINK_OPTIONS
      "-Wl,-rpath,${_cuda}/lib;-Wl,-rpath,${LIBTORCH_SITE}/nvidia/cudnn/lib;-Wl,-rpath,${LIBTORCH_SITE}/nvidia/nccl/lib")
endif()
