# What `cmake --install` puts where: headers, both libraries, the program, libdro.pc and the CMake
# package libdro (targets dro::dro and dro::dro_static). The result can be moved as a whole.
if(SKBUILD) # the Python package has the library alone, beside its modules (pyproject.toml)
  add_custom_target(python DEPENDS dro)
  install(FILES $<TARGET_FILE:dro> RENAME libdro.so DESTINATION . COMPONENT python)
  if(TARGET dro_step_cuda)
    add_dependencies(python dro_step_cuda)
    install(FILES $<TARGET_FILE:dro_step_cuda> DESTINATION . COMPONENT python)
  endif()
endif()
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/libdro)

install(TARGETS dro dro_static EXPORT libdroTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET dro_mpi)
  install(TARGETS dro_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/libdro)
endif()
if(TARGET dro_cli AND DRO_HAS_CLI)
  install(TARGETS dro_cli DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(NOT CMAKE_CROSSCOMPILING)
    install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${PROJECT_BINARY_DIR}/completions/dro
      DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${PROJECT_BINARY_DIR}/completions/_dro
      DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  endif()
endif()
install(DIRECTORY include/dro DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT libdroTargets NAMESPACE dro:: DESTINATION ${package_dir})

configure_package_config_file(cmake/libdroConfig.cmake.in libdroConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(libdroConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/libdroConfig.cmake ${PROJECT_BINARY_DIR}/libdroConfigVersion.cmake
  DESTINATION ${package_dir})

# libdro.pc finds its prefix from where it lies, unless the folders are given as absolute paths.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(pc_prefix ${CMAKE_INSTALL_PREFIX})
  set(pc_libdir ${CMAKE_INSTALL_FULL_LIBDIR})
  set(pc_includedir ${CMAKE_INSTALL_FULL_INCLUDEDIR})
else()
  file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" up ${up})
  set(pc_prefix "\${pcfiledir}/${up}")
  set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
list(TRANSFORM dro_libs PREPEND -l OUTPUT_VARIABLE pc_libs)
list(JOIN pc_libs " " pc_libs)
configure_file(cmake/libdro.pc.in libdro.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/libdro.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
