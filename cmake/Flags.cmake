# Compiler settings of our own code, as the interface target dro_flags. Nothing here reaches the
# users of the library. No -march (instruction sets are chosen at run time) and no -ffast-math
# (infinities and NaNs must be seen).
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)

add_library(dro_flags INTERFACE)
target_compile_options(dro_flags INTERFACE
  $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wall>
  $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wextra>
  $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wshadow>
  $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wvla>
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
  $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
  $<$<AND:$<BOOL:${DRO_WERROR}>,$<NOT:$<COMPILE_LANGUAGE:CUDA>>>:-Werror>
  $<$<AND:$<BOOL:${DRO_WERROR}>,$<COMPILE_LANGUAGE:CUDA>>:-Werror=all-warnings>)
# GCC 12 before 12.3 fails on a loop's fmax or fmin on ARM64 (its bug 108608).
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION VERSION_LESS 12.3 AND
   CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  target_compile_options(dro_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-fno-builtin-fmax>
    $<$<COMPILE_LANGUAGE:C>:-fno-builtin-fmin>)
endif()
