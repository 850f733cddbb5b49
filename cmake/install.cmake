include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/headrace)
install(TARGETS headrace EXPORT headraceTargets COMPONENT cpp
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
install(DIRECTORY include/headrace DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT cpp
  FILES_MATCHING PATTERN "*.h")
install(EXPORT headraceTargets NAMESPACE headrace:: DESTINATION ${package_dir} COMPONENT cpp)

configure_package_config_file(cmake/headraceConfig.cmake.in headraceConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(headraceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/headraceConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/headraceConfigVersion.cmake
  cmake/dependencies.cmake
  DESTINATION ${package_dir} COMPONENT cpp)
