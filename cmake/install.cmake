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

# For builds that know pkg-config and not CMake. At installation: the prefix is that of then.
set(headrace_pc_requires "")
set(headrace_pc_libs "")
if(LIBURING_FOUND)
  string(APPEND headrace_pc_requires " liburing")
endif()
foreach(found ZFP AEC)
  if(${found}_LIBRARY AND ${found}_INCLUDE_DIR)
    string(TOLOWER " -l${found}" flag)
    string(APPEND headrace_pc_libs "${flag}")
  endif()
endforeach()
if(HEADRACE_WITH_CUDA)
  string(APPEND headrace_pc_libs " ${CUDAToolkit_LIBRARY_DIR}/libcudart_static.a -lrt")
endif()
string(CONFIGURE [=[
set(PROJECT_VERSION "@PROJECT_VERSION@")
set(CMAKE_INSTALL_LIBDIR "@CMAKE_INSTALL_LIBDIR@")
set(CMAKE_INSTALL_INCLUDEDIR "@CMAKE_INSTALL_INCLUDEDIR@")
set(headrace_pc_requires "@headrace_pc_requires@")
set(headrace_pc_libs "@headrace_pc_libs@")
configure_file("@PROJECT_SOURCE_DIR@/cmake/headrace.pc.in" "@PROJECT_BINARY_DIR@/headrace.pc" @ONLY)
file(INSTALL "@PROJECT_BINARY_DIR@/headrace.pc"
  DESTINATION "${CMAKE_INSTALL_PREFIX}/@CMAKE_INSTALL_LIBDIR@/pkgconfig")
]=] write_pc @ONLY)
install(CODE "${write_pc}" COMPONENT cpp)
