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
# Clang warns of more than GCC: of fields that an initialiser with names leaves out, of "text" + 1, and of loops under
# `omp simd` that it does not vectorise.
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
  target_compile_options(dro_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-Wno-missing-field-initializers>
    $<$<COMPILE_LANGUAGE:C>:-Wno-string-plus-int> $<$<COMPILE_LANGUAGE:C>:-Wno-pass-failed>)
endif()
# GCC 12 before 12.3 fails on a loop's fmax or fmin on ARM64 (its bug 108608).
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION VERSION_LESS 12.3 AND
   CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  target_compile_options(dro_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-fno-builtin-fmax>
    $<$<COMPILE_LANGUAGE:C>:-fno-builtin-fmin>)
endif()

# Hardening: a stack that is written beyond an array, and calls of the C library beyond their buffers, end the program;
# tables of addresses are read-only once it runs. The linker's part is for the program and the shared library, the
# compiler's is for optimised builds without sanitizers, which have checks of their own. tests/hardening.sh looks for all
# of it.
option(DRO_HARDENING "Stack protector, fortified C library calls, full RELRO, PIE" ON)
if(CMAKE_C_FLAGS MATCHES "-fsanitize|--coverage" OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(DRO_HARDENING OFF)
endif()
if(DRO_HARDENING)
  include(CheckPIESupported)
  check_pie_supported(LANGUAGES C)
  target_compile_options(dro_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-fstack-protector-strong>
    $<$<COMPILE_LANGUAGE:C>:-fstack-clash-protection>
    $<$<COMPILE_LANGUAGE:C>:-U_FORTIFY_SOURCE>
    $<$<COMPILE_LANGUAGE:C>:-D_FORTIFY_SOURCE=2>)
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    set(dro_link_flags -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
  endif()
endif()
