# libtorch from the torch wheel in LORIKEET_VENV, as imported targets:
#   lorikeet::torch_cpu   what CPU code compiles and links against
#   lorikeet::torch_cuda  adds the CUDA half, for what names its symbols: programs load it when they need it
#   lorikeet::cudart      the CUDA runtime alone, for .cu files and what calls them
# Also sets LIBTORCH_ROOT, LIBTORCH_SITE (its site-packages), LIBTORCH_VERSION and CMAKE_BUILD_RPATH: the folders
# that programs in the build tree find libtorch in (installed ones have none, and a launcher that names it).
# The wheel's own TorchConfig.cmake is slow, needs nvcc and adds flags to every target.
file(GLOB _site "${LORIKEET_VENV}/lib/python3*/site-packages")
find_path(LIBTORCH_ROOT NAMES lib/libtorch_cpu.so PATHS "${_site}/torch" NO_DEFAULT_PATH NO_CACHE)
if(LIBTORCH_ROOT)
  string(REGEX REPLACE "/$" "" LIBTORCH_ROOT "${LIBTORCH_ROOT}")
  file(STRINGS "${LIBTORCH_ROOT}/version.py" _version REGEX "^__version__")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" LIBTORCH_VERSION "${_version}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch REQUIRED_VARS LIBTORCH_ROOT
  VERSION_VAR LIBTORCH_VERSION
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
      "${LIBTORCH_ROOT}/lib/libtorch_cpu.so;${LIBTORCH_ROOT}/lib/libc10.so;${LIBTORCH_ROOT}/lib/libgomp.so.1")

  set(_cuda "${LIBTORCH_SITE}/nvidia/cu13")
  add_library(lorikeet::cudart INTERFACE IMPORTED)
  set_target_properties(lorikeet::cudart PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_cuda}/include"
    INTERFACE_LINK_LIBRARIES "${_cuda}/lib/libcudart.so.13")
  add_library(lorikeet::torch_cuda INTERFACE IMPORTED)
  set_target_properties(lorikeet::torch_cuda PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES
      "${LIBTORCH_SITE}/nvidia/nccl/include;${LIBTORCH_SITE}/nvidia/cudnn/include"
    INTERFACE_COMPILE_DEFINITIONS "USE_C10D_NCCL"
    INTERFACE_LINK_LIBRARIES
      "lorikeet::torch_cpu;lorikeet::cudart;${LIBTORCH_ROOT}/lib/libtorch_cuda.so;${LIBTORCH_ROOT}/lib/libc10_cuda.so")

  set(CMAKE_BUILD_RPATH "${LIBTORCH_ROOT}/lib" "${_cuda}/lib"
    "${LIBTORCH_SITE}/nvidia/cudnn/lib" "${LIBTORCH_SITE}/nvidia/nccl/lib")
endif()
