# libdro_step_cuda.so: the steps of the Python package on tensors of a GPU (src/backend/cuda/module). Needs nvcc, no
# other library of CUDA's. Without nvcc, one line says so. Machine code for the generations since Ampere, and PTX for
# the GPUs between and after them.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90-real 100-real 120)
endif()
find_program(step_nvcc nvcc HINTS /usr/local/cuda/bin NO_CACHE)
if(step_nvcc AND NOT DEFINED ENV{CUDACXX})
  set(ENV{CUDACXX} ${step_nvcc}) # NVIDIA's packages do not put it in PATH
endif()
include(CheckLanguage)
if(NOT CMAKE_CROSSCOMPILING)
  check_language(CUDA)
endif()
if(NOT CMAKE_CUDA_COMPILER)
  message(STATUS "libdro: no nvcc (cuda-toolkit-13-0, PATH or CUDACXX): steps on PyTorch's tensors run on the CPU only")
  return()
endif()
enable_language(CUDA)
add_library(dro_step_cuda MODULE src/backend/cuda/module/phases.cu)
target_include_directories(dro_step_cuda PRIVATE include src/backend src/base)
target_link_libraries(dro_step_cuda PRIVATE dro_flags)
include(CheckCompilerFlag)
check_compiler_flag(CUDA --compress-mode=size DRO_HAVE_COMPRESS_MODE) # in the wheel 0.5 MB less than -compress-all
target_compile_options(dro_step_cuda PRIVATE
  $<IF:$<BOOL:${DRO_HAVE_COMPRESS_MODE}>,--compress-mode=size,-Xfatbin=-compress-all>)
target_link_options(dro_step_cuda PRIVATE LINKER:-s LINKER:--exclude-libs,ALL)
set_target_properties(dro_step_cuda PROPERTIES CUDA_VISIBILITY_PRESET hidden CUDA_RUNTIME_LIBRARY Static
  CUDA_STANDARD 17 LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
