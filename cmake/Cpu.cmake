# The cpu backend. Convolutions of 3 x 3 are our own; the others, and matrix products, are oneDNN's on x86 where it is
# installed, else simpler ones of our own.
file(GLOB cpu_sources CONFIGURE_DEPENDS src/backend/cpu/*.c src/backend/cpu/net/*.c)
set(simd_sources ${cpu_sources})
list(FILTER simd_sources INCLUDE REGEX "/(winograd|simd_)[^/]*$")
list(FILTER cpu_sources EXCLUDE REGEX "/(winograd|simd_)[^/]*$|/onednn.c$|/onednn_absent.c$")
target_compile_definitions(room_backend PRIVATE DRO_WITH_CPU=1)
target_compile_options(room_backend PRIVATE
  $<$<COMPILE_LANGUAGE:C>:-fopenmp-simd>) # `omp simd`, without its library

# dro_simd(NAME FLAG...): the kernels of src/backend/cpu/net/simd.h for one instruction set.
function(dro_simd name)
  add_library(simd_${name} OBJECT ${simd_sources})
  target_compile_definitions(simd_${name} PRIVATE DRO__SIMD=${name})
  target_compile_options(simd_${name} PRIVATE ${ARGN} -ffp-contract=fast)
  target_include_directories(simd_${name} PRIVATE include src/base src/backend)
  target_link_libraries(simd_${name} PRIVATE dro_flags)
  set_target_properties(simd_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
  set(dro_objects ${dro_objects} $<TARGET_OBJECTS:simd_${name}> PARENT_SCOPE)
endfunction()
dro_simd(base)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(x86 ON)
  dro_simd(avx2 -mavx2 -mfma)
  dro_simd(avx512 -mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma)
endif()

if(x86 AND NOT "onednn" IN_LIST DRO_HIDE)
  find_path(DRO_ONEDNN_INCLUDE dnnl.h)    # not its CMake package: Debian's fails where OpenCL's headers, which
  find_library(DRO_ONEDNN_LIBRARY dnnl)   # only its GPU engine needs, are not installed
  find_package(OpenMP QUIET COMPONENTS C)
endif()
if(x86 AND NOT "onednn" IN_LIST DRO_HIDE AND DRO_ONEDNN_INCLUDE AND DRO_ONEDNN_LIBRARY AND OpenMP_C_FOUND)
  list(APPEND cpu_sources ${PROJECT_SOURCE_DIR}/src/backend/cpu/net/onednn.c)
  target_compile_definitions(room_backend PRIVATE DRO_WITH_ONEDNN=1)
  target_include_directories(room_backend SYSTEM PRIVATE ${DRO_ONEDNN_INCLUDE})
  get_filename_component(onednn_dir ${DRO_ONEDNN_LIBRARY} DIRECTORY)
  link_directories(${onednn_dir})
  list(APPEND dro_libs dnnl ${OpenMP_C_LIB_NAMES})
else()
  list(APPEND cpu_sources ${PROJECT_SOURCE_DIR}/src/backend/cpu/net/onednn_absent.c)
  if(x86)
    message(STATUS "libdro: oneDNN not found (libdnnl-dev): convolutions other than 3 x 3 are slower")
  endif()
endif()
target_sources(room_backend PRIVATE ${cpu_sources})
