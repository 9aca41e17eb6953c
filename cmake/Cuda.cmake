# The cuda backend: nvcc, the CUDA runtime (static), cuBLAS and cuDNN. Switches DRO_CUDA off, with one line, when
# one of them is missing. Machine code for compute capability 9.0, and PTX for later ones.
check_language(CUDA)
find_package(CUDAToolkit QUIET)
find_path(DRO_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(DRO_CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR})
find_library(DRO_CUBLAS_LIBRARY NAMES cublas HINTS ${CUDAToolkit_LIBRARY_DIR})
if(NOT CMAKE_CUDA_COMPILER OR NOT CUDAToolkit_FOUND OR NOT DRO_CUDNN_INCLUDE OR NOT DRO_CUDNN_LIBRARY
   OR NOT DRO_CUBLAS_LIBRARY)
  message(STATUS "libdro: nvcc, cuBLAS or cuDNN not found: no cuda backend")
  set(DRO_CUDA OFF)
  return()
endif()

set(CMAKE_CUDA_ARCHITECTURES 90a-real 90-virtual) # a: with the instructions of warp groups
enable_language(CUDA)
file(GLOB cuda_sources CONFIGURE_DEPENDS src/backend/cuda/*.c src/backend/cuda/*.cu)
target_sources(room_backend PRIVATE ${cuda_sources})
target_compile_definitions(room_backend PRIVATE DRO_WITH_CUDA=1)
target_include_directories(room_backend SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${DRO_CUDNN_INCLUDE})
set_target_properties(room_backend PROPERTIES CUDA_VISIBILITY_PRESET hidden
  CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
get_filename_component(cudnn_dir ${DRO_CUDNN_LIBRARY} DIRECTORY)
get_filename_component(cublas_dir ${DRO_CUBLAS_LIBRARY} DIRECTORY)
link_directories(${CUDAToolkit_LIBRARY_DIR} ${cudnn_dir} ${cublas_dir})
list(APPEND CMAKE_BUILD_RPATH ${cudnn_dir} ${cublas_dir})
list(APPEND dro_libs cudnn cublas cudart_static stdc++ dl rt)
