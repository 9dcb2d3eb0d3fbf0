# cmake -DPROGRAM=... -P travel.cmake: puts the shared libraries beside a program that not every system has.
get_filename_component(folder ${PROGRAM} DIRECTORY)
# Several programs are linked at once, and what one has put there is found for the next.
file(LOCK ${folder} DIRECTORY GUARD PROCESS TIMEOUT 60)
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${PROGRAM} RESOLVED_DEPENDENCIES_VAR found UNRESOLVED_DEPENDENCIES_VAR missing
  CONFLICTING_DEPENDENCIES_PREFIX there
  PRE_INCLUDE_REGEXES "lib(fmt|spdlog|capnp|kj|xxhash)" PRE_EXCLUDE_REGEXES ".*")
foreach(library ${found})
  get_filename_component(name ${library} NAME)
  file(REAL_PATH ${library} file)
  if(NOT file STREQUAL "${folder}/${name}")
    file(COPY_FILE ${file} ${folder}/${name} ONLY_IF_DIFFERENT)
  endif()
endforeach()
