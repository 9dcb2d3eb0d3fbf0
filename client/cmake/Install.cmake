# What `cmake --install` gives: component `library` (shared libraries, their headers, and how CMake and
# pkg-config find them) and component `tool` (the command with its man page and completions, and SQLite's extension,
# which nothing links). Binaries are stripped: what debuggers need is nine tenths of them, and stays in the build.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(QUARRY_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Quarry)
set(QUARRY_PKGCONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

option(QUARRY_INSTALL_STRIP "Strip what is installed" ON)
if(QUARRY_INSTALL_STRIP)
  install(CODE "set(CMAKE_INSTALL_DO_STRIP TRUE)" ALL_COMPONENTS)
endif()

install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/quarry COMPONENT tool)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libquarry-dev COMPONENT library)
if(TARGET quarry-train)
  install(TARGETS quarry-train RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tool)
endif()
if(TARGET quarry)
  install(TARGETS quarry RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tool)
  install(FILES ${QUARRY_SHARE}/quarry.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tool)
  install(FILES ${QUARRY_SHARE}/quarry.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME quarry COMPONENT tool)
  install(FILES ${QUARRY_SHARE}/quarry.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT tool)
  # Debian's zsh has no site-functions below /usr in its fpath, and others have no vendor-completions.
  foreach(QUARRY_ZSH site-functions vendor-completions)
    install(FILES ${QUARRY_SHARE}/quarry.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${QUARRY_ZSH} RENAME _quarry COMPONENT tool)
  endforeach()
endif()
if(TARGET quarry_sqlite)
  install(TARGETS quarry_sqlite LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/quarry COMPONENT tool)
endif()
install(TARGETS quarry_shared quarry_remote_shared EXPORT QuarryTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT library)
install(EXPORT QuarryTargets NAMESPACE Quarry:: DESTINATION ${QUARRY_CMAKE_DIR} COMPONENT library)

# No others: an installed header includes installed headers only.
install(FILES include/quarry.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)
install(FILES
  include/quarry/client/c_admin.h
  include/quarry/client/c_batches.h
  include/quarry/client/c_sql.h
  include/quarry/client/c_tables.h
  include/quarry/client/c_training.h
  include/quarry/client/large_put.h
  include/quarry/client/sql.h
  include/quarry/client/stream_device.h
  include/quarry/client/store.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/quarry/client COMPONENT library)
install(FILES
  ${CMAKE_SOURCE_DIR}/engine/base/include/quarry/base/progress.h
  ${CMAKE_SOURCE_DIR}/engine/base/include/quarry/base/random.h
  ${CMAKE_SOURCE_DIR}/engine/base/include/quarry/base/status.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/quarry/base COMPONENT library)
set(QUARRY_FORMAT_HEADERS batch_view device_batch element_type embedding_spec fanouts partition_method road_spec types wire_batch wire_derived wire_maintenance wire_parts wire_requests wire_responses wire_sql wire_status wire_training wire_types wire_writes)
list(TRANSFORM QUARRY_FORMAT_HEADERS PREPEND ${CMAKE_SOURCE_DIR}/format/include/quarry/format/)
list(TRANSFORM QUARRY_FORMAT_HEADERS APPEND .h)
install(FILES ${QUARRY_FORMAT_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/quarry/format COMPONENT library)

configure_package_config_file(cmake/QuarryConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/QuarryConfig.cmake
  INSTALL_DESTINATION ${QUARRY_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/QuarryConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/QuarryConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/QuarryConfigVersion.cmake
  DESTINATION ${QUARRY_CMAKE_DIR} COMPONENT library)

# Relative, so that an installed tree can be moved.
file(RELATIVE_PATH QUARRY_PREFIX_FROM_PKGCONFIG
  ${CMAKE_INSTALL_PREFIX}/${QUARRY_PKGCONFIG_DIR} ${CMAKE_INSTALL_PREFIX})
foreach(QUARRY_LIBRARY quarry quarry_remote)
  string(REPLACE _ - QUARRY_PACKAGE ${QUARRY_LIBRARY})
  configure_file(cmake/quarry.pc.in ${CMAKE_CURRENT_BINARY_DIR}/${QUARRY_PACKAGE}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${QUARRY_PACKAGE}.pc DESTINATION ${QUARRY_PKGCONFIG_DIR} COMPONENT library)
endforeach()
