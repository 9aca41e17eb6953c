# dro_room: one object library per room of src/, with an include path that holds include/, the
# room's own folder and the rooms it may see, so that a wrong include does not compile.
# dro_library: the library made of all rooms and of dro_objects.

# dro_room(NAME [SEES room...] [ALSO subfolder...]) makes the target room_NAME from
# src/NAME/*.c and src/NAME/subfolder/*.c. A room that has no source yet makes no target.
function(dro_room name)
  cmake_parse_arguments(arg "" "" "SEES;ALSO" ${ARGN})
  set(patterns src/${name}/*.c)
  foreach(sub ${arg_ALSO})
    list(APPEND patterns src/${name}/${sub}/*.c)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  if(NOT sources)
    return()
  endif()
  add_library(room_${name} OBJECT ${sources})
  target_include_directories(room_${name} PRIVATE include src/${name})
  foreach(seen ${arg_SEES})
    target_include_directories(room_${name} PRIVATE src/${seen})
  endforeach()
  target_compile_definitions(room_${name} PRIVATE DRO_BUILD)
  target_link_libraries(room_${name} PRIVATE dro_flags)
  set_target_properties(room_${name} PROPERTIES
    POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
  set(dro_rooms ${dro_rooms} ${name} PARENT_SCOPE)
endfunction()

# dro_library(TARGET SHARED|STATIC) makes the library, known to users as dro::TARGET.
function(dro_library target kind)
  set(objects ${dro_rooms})
  list(TRANSFORM objects REPLACE "(.+)" "$<TARGET_OBJECTS:room_\\1>")
  add_library(${target} ${kind} ${objects} ${dro_objects})
  add_library(dro::${target} ALIAS ${target})
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PRIVATE ${dro_libs})
  target_link_options(${target} PRIVATE ${dro_link_flags})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
endfunction()
