# Writes version.cc, with the commit that is checked out. The file changes only with the commit, and a commit
# configures the build again, so that `quarry --version` is not behind and nothing else is compiled for it.
set(QUARRY_COMMIT unknown)
find_package(Git QUIET)
# Sources that were unpacked inside of somebody else's repository have no commit of their own.
if(GIT_FOUND AND EXISTS ${CMAKE_SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --short=10 HEAD
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} RESULT_VARIABLE QUARRY_GIT OUTPUT_VARIABLE QUARRY_GIT_COMMIT
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(QUARRY_GIT EQUAL 0)
    set(QUARRY_COMMIT ${QUARRY_GIT_COMMIT})
  endif()
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --git-path logs/HEAD
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE QUARRY_GIT_LOG OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  cmake_path(ABSOLUTE_PATH QUARRY_GIT_LOG BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(NOT IS_DIRECTORY ${QUARRY_GIT_LOG} AND EXISTS ${QUARRY_GIT_LOG})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${QUARRY_GIT_LOG})
  endif()
endif()
configure_file(cli/version.cc.in ${CMAKE_CURRENT_BINARY_DIR}/version.cc @ONLY)
